"""Building hop tables: out-of-core products of a graph and a feature table."""
