"""Scores of edges (Dot, DistMult, ComplEx, TransE, RotatE) and the losses on them."""
