"""Exact metrics of a node classifier, from outputs that stream past. Definitions are scikit-learn's."""
