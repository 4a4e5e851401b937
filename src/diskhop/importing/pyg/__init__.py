"""Graphs in objects of PyTorch Geometric: Data and HeteroData."""
