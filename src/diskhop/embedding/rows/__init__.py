"""Learned rows on disk: a file of pages with a cache in memory, and versions of it for checkpoints."""
