"""Training on graphs with several types of nodes or edges."""
