"""Folders of PyTorch-BigGraph: entity counts and buckets of edges in HDF5."""
