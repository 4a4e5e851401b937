"""Choosing how to run: from a dataset, a workload and a budget to a Plan."""
