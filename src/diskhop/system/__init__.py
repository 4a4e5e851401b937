"""This machine and this process: memory, cores, and cached measurements."""
