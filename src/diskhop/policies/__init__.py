"""Pure functions from plain arrays to plans: what to read, cache and evict, and in which order. No I/O here."""
