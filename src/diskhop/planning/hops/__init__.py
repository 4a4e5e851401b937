"""Predicted cost of training on hop tables, for each placement."""
