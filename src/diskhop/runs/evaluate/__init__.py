"""Evaluation of trained node classifiers."""
