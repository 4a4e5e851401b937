"""Pure functions from plain arrays to plans: what to read, keep and evict, and in which order. None does I/O."""
