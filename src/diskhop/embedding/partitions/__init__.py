"""Partitions of nodes: layout, files, the in-memory buffer, and edges bucketed by partition."""
