"""Mini-batches as bytes on disk: records of single batches, traces of many."""
