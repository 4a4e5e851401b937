"""Graphs in tables: Parquet and CSV files of nodes and edges."""
