"""Updating datasets: a delta of nodes and edges becomes the next generation of their files."""
