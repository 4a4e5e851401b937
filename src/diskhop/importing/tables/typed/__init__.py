"""Tables per type: a table for each type of nodes and of edges, as files are named or as schema.toml says."""
