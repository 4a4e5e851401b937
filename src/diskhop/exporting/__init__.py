"""Exporting datasets: one file for each format, and a line in EXPORTS."""
