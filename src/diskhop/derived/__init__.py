"""Derived files, which can be rebuilt at any time: where they are, and how they are listed and removed."""
