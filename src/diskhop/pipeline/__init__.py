"""From seed nodes to mini-batches: sampling, prefetching, fetching and decoding, stage by stage."""
