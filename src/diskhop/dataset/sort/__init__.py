"""In-neighbour lists from pairs of any number: sorting in memory and on disk, hot order."""
