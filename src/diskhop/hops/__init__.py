"""Pre-propagation: features are aggregated over the graph once, into hop tables that training reads (PP-GNN)."""
