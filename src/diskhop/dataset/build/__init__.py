"""Dataset building: checks, sorts and writes nodes and edges."""
