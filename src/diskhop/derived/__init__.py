"""Folders that can be rebuilt at any time: where they lie, and how they are listed and removed."""
