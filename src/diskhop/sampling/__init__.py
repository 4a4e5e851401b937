"""Sampling: the topology in memory, mapped or cached, the samplers that read it, and seed nodes."""
