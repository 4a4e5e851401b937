"""Edges of batches as a sparse matrix `adj_t`, for graphs that were imported with one, as PyG's loaders give it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor
from torch_geometric.utils import to_torch_sparse_tensor

from diskhop.dataset.adj_info import SPARSE_TENSOR, AdjInfo
from diskhop.loaders.batches import Batch
from diskhop.loaders.loader_data import LoaderData
from diskhop.pipeline.batch_values import E_ID
from diskhop.plans import PreparedBytes

# Of each edge: its place in order, both ends once more, and the matrix with a copy that merging repeated edges takes.
ADDED = PreparedBytes(per_edge=8 + 16 + 2 * 24)
_OF_LOADERS = (E_ID, "edge_importance")


class Adjacencies:
    """The edge types of a graph that batches have as `adj_t`.

    data: the graph of the loader.
    """

    def __init__(self, data: LoaderData) -> None:
        self._data = data
        self._edges = [each for each in data.edges.values() if each.adj_t is not None]

    def __bool__(self) -> bool:
        return len(self._edges) > 0

    def put(self, batch: Batch) -> Batch:
        """Replace edge_index by adj_t in a batch, and return it. Other values of edges are then in the same order."""
        for edges in self._edges:
            assert edges.adj_t is not None
            if self._data.is_typed:
                _replace(batch[edges.ends], edges.adj_t, {*edges.attributes, *_OF_LOADERS})
            else:
                names = self._data.names_per_edge(has_numbers=E_ID in batch)
                _replace(batch.edge_stores[0], edges.adj_t, {*names, *_OF_LOADERS})
        return batch


def _replace(store: Any, info: AdjInfo, names: Collection[str]) -> None:
    """Replace the edge_index of a part of a batch. names: of its values per edge."""
    edge_index = store["edge_index"]
    num_sources, num_targets = store.size()
    sources, targets = edge_index.cpu().numpy()
    order = torch.from_numpy(np.lexsort((sources, targets))).to(edge_index.device)
    columns, rows = edge_index[:, order]
    for name in names:
        if name in store:
            store[name] = store[name][order]
    del store["edge_index"]
    values = store.pop(info.values, None) if info.values else None
    store["adj_t"] = _matrix(rows, columns, values, (num_targets, num_sources), info.layout)


def _matrix(
    rows: torch.Tensor, columns: torch.Tensor, values: torch.Tensor | None, sizes: tuple[int, int], layout: str
) -> Any:
    """Make a sparse matrix of sorted edges. Like PyG, one of torch-sparse is sparse_csr where that is not installed."""
    if layout == SPARSE_TENSOR and WITH_TORCH_SPARSE:
        return SparseTensor(row=rows, col=columns, value=values, sparse_sizes=sizes, is_sorted=True, trust_data=True)
    kind = torch.sparse_csr if layout == SPARSE_TENSOR else getattr(torch, layout)
    return to_torch_sparse_tensor(torch.stack([rows, columns]), values, size=sizes, layout=kind)
