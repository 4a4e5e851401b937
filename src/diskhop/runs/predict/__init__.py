"""Predictions of a trained model for the nodes of its dataset, or of a newer one."""
