"""Graphs on disk: the format, and how datasets are written, opened and verified."""
