"""Layers of built-in models over all nodes: columns in memory, neighbour lists streamed past them."""
