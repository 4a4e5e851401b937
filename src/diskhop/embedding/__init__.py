"""Embeddings of nodes in partitions, a few of them in memory at a time (Legend)."""
