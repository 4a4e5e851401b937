"""Runs that train embeddings, and everything done with the result."""
