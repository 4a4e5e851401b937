"""Memory of a mini-batch."""

from __future__ import annotations

from diskhop.dataset.dataset import Dataset
from diskhop.system.memory import buffer_bytes


def bytes_per_row_made(dataset: Dataset) -> int:
    """Bytes per row that decoding adds: dequantised int8, or made features of a dataset without any."""
    if dataset.features() is None:
        return 4 * dataset.made_features.dim
    return 4 * dataset.feature_dim if dataset.feature_dtype == "int8" else 0


def batch_bytes(dataset: Dataset, block_bytes: int, num_nodes: int) -> int:
    """Bytes of a mini-batch as the model gets it. block_bytes: bytes of its nodes and edges."""
    table = dataset.features()
    row_bytes = 0 if table is None else table.row_bytes
    return buffer_bytes(block_bytes) + buffer_bytes(num_nodes * row_bytes) + num_nodes * bytes_per_row_made(dataset)
