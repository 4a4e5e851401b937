"""A whole dataset in memory, as PyG's Data or HeteroData."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData

from diskhop.budget import format_bytes, parse_bytes
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edge_set import EdgeSet
from diskhop.dataset.files import map_array
from diskhop.dataset.node_set import NodeSet
from diskhop.errors import BudgetError
from diskhop.loaders.loader_data import LoaderData
from diskhop.pipeline.batch_values import E_ID
from diskhop.pipeline.columns import tensor_of
from diskhop.protocols import NodeRows
from diskhop.system.memory import default_memory_bytes

# Bytes per edge: pairs of positions, and what they are made of.
_BYTES_PER_EDGE = 16 + 24


def to_pyg(dataset: Dataset, memory: int | str | None = None) -> Data | HeteroData:
    """Read a dataset into memory; see Dataset.to_pyg()."""
    limit = parse_bytes(memory) if isinstance(memory, str) else memory
    limit_bytes = default_memory_bytes() if limit is None else limit
    needed_bytes = memory_needed(dataset)
    if needed_bytes > limit_bytes:
        raise BudgetError(
            f"{dataset.path}: takes {format_bytes(needed_bytes)} in memory, and {format_bytes(limit_bytes)} may be "
            f"used; pass memory='{-(-needed_bytes // 1_000_000)}MB', or train from disk by diskhop.NeighborLoader",
            needed_bytes,
        )
    if not dataset.is_typed:
        data = Data()
        _read_nodes(data, dataset, dataset.only_nodes)
        for edges in dataset.edges.values():
            _read_edges(data, edges)
        return data
    typed = HeteroData()
    for name, nodes in dataset.nodes.items():
        _read_nodes(typed[name], dataset, nodes)
    for edges in dataset.edges.values():
        _read_edges(typed[edges.ends], edges)
    return typed


def memory_needed(dataset: Dataset) -> int:
    """Return the bytes that a dataset takes in memory at most, while it is read, too."""
    num_bytes = most_bytes = 0
    for nodes in dataset.nodes.values():
        for info in nodes.attributes.values():
            column_bytes = nodes.num_nodes * info.num_values * 8
            if info.stored_as == "features":
                column_bytes = nodes.num_nodes * nodes.feature_dim * (2 if nodes.feature_dtype == "float16" else 4)
            num_bytes, most_bytes = num_bytes + column_bytes, max(most_bytes, column_bytes)
        num_bytes += 16 * nodes.num_nodes if nodes.has_original_ids else 0
    for edges in dataset.edges.values():
        columns = sum(8 * info.num_values for info in edges.attributes.values())
        num_bytes += edges.num_edges * (_BYTES_PER_EDGE + columns)
    # What is put into another order is there twice.
    return num_bytes + most_bytes


def _read_nodes(store: Any, dataset: Dataset, nodes: NodeSet) -> None:
    data = LoaderData(dataset.of_node_type(nodes.name))
    for name, info in nodes.attributes.items():
        store[name] = data.read(name, info)
    if nodes.feature_table() is None or nodes.states_count:
        store["num_nodes"] = nodes.num_nodes
    if nodes.has_original_ids:
        ids = nodes.node_ids()
        if not np.array_equal(ids, np.arange(nodes.num_nodes)):
            store["n_id"] = torch.from_numpy(np.array(ids))


def _read_edges(store: Any, edges: EdgeSet) -> None:
    files, (sources, destinations) = edges.topology, edges.end_nodes
    indptr = map_array(files.indptr_path, np.int64, files.num_nodes + 1)
    pairs = np.empty((2, files.num_edges), np.int64)
    pairs[0] = map_array(files.indices_path, files.index_dtype, files.num_edges)
    pairs[1] = np.repeat(np.arange(files.num_nodes), np.diff(indptr))
    for end, nodes in enumerate((sources, destinations)):
        positions = nodes.lookup().positions()
        if positions is not None:
            pairs[end] = positions[NodeRows(pairs[end])]
    store["edge_index"] = torch.from_numpy(pairs)
    for name, info in edges.attributes.items():
        column = edges.column(name)
        assert column is not None, "it is an attribute"
        store[name] = tensor_of(np.array(edges.read(column)), info)
    if edges.edge_id_column() is not None and E_ID not in edges.attributes:
        numbers = edges.edge_ids()
        assert numbers is not None, "they have a column"
        store[E_ID] = torch.from_numpy(numbers.astype(np.int64))
