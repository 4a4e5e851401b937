"""Training on hop tables along paths, in graphs with several types of nodes or edges."""
