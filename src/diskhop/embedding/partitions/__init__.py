"""Partitions of nodes: their layout, files, the buffer that holds some of them, the edges between them."""
