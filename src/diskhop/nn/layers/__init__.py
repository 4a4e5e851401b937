"""Layers of graph neural networks on sampled blocks, with the parameters of PyTorch Geometric's."""
