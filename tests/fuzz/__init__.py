"""Fuzz targets of the readers in Python, one a file: whatever a file holds, a reader refuses it with its own error."""
