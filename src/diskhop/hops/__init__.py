"""Pre-propagation: features aggregated over the graph once, into hop tables, of which training reads rows (PP-GNN)."""
