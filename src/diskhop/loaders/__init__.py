"""What a user of PyTorch Geometric imports: loaders of mini-batches."""
