"""Training on links: a network whose embeddings say which nodes have edges."""
