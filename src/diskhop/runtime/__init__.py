"""Work distributed over threads, processes and DuckDB, and the channels between them."""
