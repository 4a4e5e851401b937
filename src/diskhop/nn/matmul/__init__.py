"""Matrix products of linear layers: backends, precisions, and which one a machine should use."""
