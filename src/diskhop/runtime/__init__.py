"""Work spread over threads, processes and DuckDB, and the channels between them."""
