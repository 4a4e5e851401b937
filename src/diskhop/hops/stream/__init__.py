"""Tables of tiles, features and neighbour lists streamed part by part: read ahead, and written behind."""
