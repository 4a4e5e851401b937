"""Prediction for all nodes, layer by layer, from disk."""
