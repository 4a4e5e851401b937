"""Predicted cost of training embeddings, for each number of partitions."""
