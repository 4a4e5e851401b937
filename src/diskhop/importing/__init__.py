"""Importing graphs: one file or folder for each kind of source, and a line in SOURCES."""
