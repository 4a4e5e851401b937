"""A training step of embeddings: negatives, scores, gradients and Adagrad."""
