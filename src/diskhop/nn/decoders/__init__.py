"""Decoders: the score of a pair of nodes by their embeddings."""
