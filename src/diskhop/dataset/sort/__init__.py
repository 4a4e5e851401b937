"""In-neighbour lists from any number of edges: sorting in memory and on disk, and the hot order of nodes."""
