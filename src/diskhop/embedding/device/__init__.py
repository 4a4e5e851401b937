"""Training on a device: partitions in its memory, draws, and steps there."""
