"""The cost of reads on a disk: the model, the probe that measures it, and timed streams of requests."""
