"""This machine and this process: memory, cores, what was measured and remembered."""
