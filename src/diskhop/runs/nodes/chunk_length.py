"""The longest chunks with which batches still mix classes; neighbouring rows often have the same class.

A batch of chunks is a cluster sample. With rho the correlation of labels within chunks of m rows, it is worth
b / (1 + (m - 1) rho) rows drawn one by one (Kish's design effect). PP-GNN's chunks, as long as a batch, lose nothing
where rho is 0. On oewn, which is sorted by class, rho is 0.65, and they lose 12 points.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Rows drawn one by one that a batch of chunks must be worth: oewn loses 0.1 points with 90, and nothing with more.
_LEAST_DRAWS = 64
_SMALL_EFFECT = 2.0
# Stretches that are sampled, each as long as a batch.
_MOST_STRETCHES = 256


def longest_mixed_chunk(labels: NDArray[Any], batch_size: int) -> int:
    """Return the rows per chunk: batch_size, or the largest power of two below it that still mixes classes.

    labels: of the training rows in the order of the table; (n) classes, or (n, columns), where the first column counts
        as two classes, below and above its mean.
    """
    if len(labels) <= batch_size:
        return batch_size
    classes = labels if labels.ndim == 1 else labels[:, 0] > np.nan_to_num(labels[:, 0]).mean()
    starts = np.arange(0, len(classes) - batch_size + 1, batch_size)
    starts = starts[:: -(-len(starts) // _MOST_STRETCHES)]
    sample = np.unique(classes[starts[:, None] + np.arange(batch_size)], return_inverse=True)[1]
    sample = sample.reshape(len(starts), batch_size)
    most_effect = max(_SMALL_EFFECT, batch_size / _LEAST_DRAWS)
    chunk_rows = batch_size
    while chunk_rows > 1 and _design_effect(sample, chunk_rows) > most_effect:
        chunk_rows = 1 << ((chunk_rows - 1).bit_length() - 1)
    return chunk_rows


def _design_effect(sample: NDArray[np.int64], chunk_rows: int) -> float:
    """Return 1 + (m - 1) rho; rho compares how often two rows of a chunk share a class with how often any two do."""
    shares = np.bincount(sample.ravel()) / sample.size
    alike_at_random = float((shares**2).sum())
    if alike_at_random == 1:
        return 1.0
    whole = sample[:, : sample.shape[1] // chunk_rows * chunk_rows].reshape(-1, chunk_rows)
    chunk = np.arange(len(whole))[:, None]
    counts = np.unique(chunk * len(shares) + whole, return_counts=True)[1]
    alike = float((counts * (counts - 1)).sum()) / (whole.size * (chunk_rows - 1))
    return 1 + (chunk_rows - 1) * (alike - alike_at_random) / (1 - alike_at_random)
