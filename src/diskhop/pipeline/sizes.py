"""Memory of a mini-batch."""

from __future__ import annotations

import numpy as np

from diskhop.dataset.dataset import Dataset
from diskhop.protocols import NodeIds, TableGroup
from diskhop.system.memory import buffer_bytes


def made_bytes(dataset: Dataset, node_ids: NodeIds, num_nodes: int | None = None) -> int:
    """Bytes that decoding adds to a batch: dequantised int8, or made features of a dataset without any.

    node_ids: nodes of a batch; none: they may be of any type. num_nodes: number of nodes, if there are more like these.
    """
    return _bytes_of_rows(dataset, node_ids, num_nodes)[1]


def rows_bytes(dataset: Dataset, node_ids: NodeIds, num_nodes: int | None = None) -> int:
    """Bytes of the rows of a batch as the model gets them; arguments as for made_bytes()."""
    stored, made = _bytes_of_rows(dataset, node_ids, num_nodes)
    return stored + made


def _bytes_of_rows(dataset: Dataset, node_ids: NodeIds, num_nodes: int | None) -> tuple[int, int]:
    """Return the bytes of stored rows, in buffers, and those that decoding adds."""
    num_nodes = len(node_ids) if num_nodes is None else num_nodes
    table = dataset.feature_table()
    if table is None:
        return 0, num_nodes * 4 * dataset.made_features.dim
    if not isinstance(table, TableGroup):
        per_row = 4 * dataset.feature_dim if dataset.feature_dtype == "int8" else 0
        return buffer_bytes(num_nodes * table.row_bytes), num_nodes * per_row
    if not len(node_ids):
        padding = sum(buffer_bytes(1) for _ in table.parts[1:])
        stored = buffer_bytes(num_nodes * max(part.table.row_bytes for part in table.parts)) + padding
        return stored, num_nodes * max(part.made_bytes for part in table.parts)
    stored = made = 0
    for part in table.parts:
        count = int(np.ceil(len(part.find(node_ids)[0]) * num_nodes / max(1, len(node_ids))))
        stored += buffer_bytes(count * part.table.row_bytes)
        made += count * part.made_bytes
    return stored, made


def batch_bytes(dataset: Dataset, block_bytes: int, node_ids: NodeIds, num_nodes: int | None = None) -> int:
    """Bytes of a mini-batch as the model gets it. block_bytes: bytes of its nodes and edges; others: made_bytes()."""
    return buffer_bytes(block_bytes) + rows_bytes(dataset, node_ids, num_nodes)
