"""Loaders of mini-batches with the interface of PyTorch Geometric."""
