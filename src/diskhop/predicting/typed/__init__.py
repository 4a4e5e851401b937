"""Models of graphs with several types, layer by layer: a table per layer and node type."""
