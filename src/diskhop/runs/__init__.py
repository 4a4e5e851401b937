"""Runs: from a dataset and options to trained models and embeddings."""
