"""Statistics of a dataset, streamed from its files: degrees, labels, features, homophily and components.

Memory is bounded by a budget whatever the size of the graph; what would take too long is measured on a sample, and the
result says so.
"""
