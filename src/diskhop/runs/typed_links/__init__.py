"""Training on the edges of one type, in graphs with several types of nodes or edges."""
