"""The pipeline: sampling, prefetching, fetching and decoding turn seed nodes into mini-batches, stage by stage."""
