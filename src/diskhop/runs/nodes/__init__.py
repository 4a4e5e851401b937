"""Runs that classify nodes: configuration, training, validation, test."""
