"""Making hop tables: the out-of-core product of a graph and a feature table."""
