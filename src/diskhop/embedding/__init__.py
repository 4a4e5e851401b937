"""Node embeddings in partitions on disk, a few of them in memory at a time (Legend)."""
