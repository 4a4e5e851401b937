"""Splits of edges for link prediction: which edges are held out, and the graphs without them."""
