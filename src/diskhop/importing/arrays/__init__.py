"""Graphs in NumPy arrays: .npz files, folders of .npy files, sparse matrices."""
