"""A graph on disk: its format, how it is written, opened, checked and brought in from elsewhere."""
