"""One step of training embeddings: negatives, scores, gradients, Adagrad."""
