"""Bytes of a mini-batch in memory."""

from __future__ import annotations

from diskhop.dataset.dataset import Dataset
from diskhop.system.memory import buffer_bytes


def bytes_per_row_made(dataset: Dataset) -> int:
    """Bytes of a node's features that are made of what a store brings: dequantised int8, or for want of features."""
    if dataset.features() is None:
        return 2 * 4
    return 4 * dataset.feature_dim if dataset.feature_dtype == "int8" else 0


def batch_bytes(dataset: Dataset, block_bytes: int, num_nodes: int) -> int:
    """Memory of a mini-batch as the model gets it."""
    table = dataset.features()
    row_bytes = 0 if table is None else table.row_bytes
    return buffer_bytes(block_bytes) + buffer_bytes(num_nodes * row_bytes) + num_nodes * bytes_per_row_made(dataset)
