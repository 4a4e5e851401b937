"""Neural networks: layers of mini-batches, models of hop tables, matrix products."""
