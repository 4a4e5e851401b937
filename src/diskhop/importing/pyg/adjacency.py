"""Edges that a PyG object has as a sparse matrix `adj_t`, whose rows are targets.

It is a SparseTensor of torch-sparse, or a sparse tensor of PyTorch. Neither is imported here, see attributes.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.adj_info import LAYOUTS, SPARSE_TENSOR, AdjInfo
from diskhop.errors import SourceError
from diskhop.importing.pyg.attributes import Attributes, HeldValues


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Adjacency:
    """A sparse matrix as edges, in the order of its values.

    pairs: int64 (2, edges), sources and destinations.
    sizes: number of source and destination nodes that it has a place for.
    info: what gives the matrix back.
    """

    pairs: NDArray[np.int64]
    sizes: tuple[int, int]
    info: AdjInfo


def take_adjacency(store: Attributes) -> Adjacency | None:
    """Take a sparse `adj_t`, and leave its values as edge_weight or edge_attr; None: there is none.

    Raises SourceError for a matrix next to edge_index, and for values that no name is left for.
    """
    layout = _layout_of(store.peek("adj_t"))
    if layout not in LAYOUTS:
        return None
    where = store.place("adj_t")
    if "edge_index" in store.names():
        raise SourceError(
            f"{where}: is next to edge_index, and batches have one of them; del {where}, or {store.place('edge_index')}"
        )
    value = store.take("adj_t")
    sizes = tuple(value.sparse_sizes() if layout == SPARSE_TENSOR else value.shape[:2])
    rows, columns, values = _parts_of(value, layout)
    ends = [HeldValues(each, where).array() for each in (columns, rows)]
    if any(each.ndim != 1 for each in ends):
        raise SourceError(f"{where}: must be one matrix, got shape {tuple(value.shape)}; give one per graph")
    name = "" if values is None else _name_for(store, where, is_flat=values.ndim == 1)
    if name:
        store.put(name, values)
    pairs = np.stack(ends).astype(np.int64, copy=False)
    return Adjacency(pairs=pairs, sizes=(sizes[1], sizes[0]), info=AdjInfo(layout=layout, values=name))


def _layout_of(value: Any) -> str:
    name = type(value).__name__
    return name if name == SPARSE_TENSOR else str(getattr(value, "layout", "")).removeprefix("torch.")


def _parts_of(value: Any, layout: str) -> tuple[Any, Any, Any]:
    """Return rows, columns and values (edges, ...) of a matrix; None for no values."""
    if layout == SPARSE_TENSOR:
        rows, columns, values = value.coo()
        return rows, columns, values
    if layout == "sparse_coo":
        value = value.coalesce()
        rows, columns = value.indices()
        return rows, columns, value.values()
    if layout == "sparse_csr":
        columns = value.col_indices()
        return _expanded(value.crow_indices(), columns), columns, value.values()
    rows = value.row_indices()
    return rows, _expanded(value.ccol_indices(), rows), value.values()


def _expanded(starts: Any, others: Any) -> Any:
    """Return the row of each edge, given where the edges of each row begin; others: the other ends."""
    if starts.ndim != 1 or others.device.type != "cpu":
        return others  # refused by the caller
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts.numpy()))


def _name_for(store: Attributes, where: str, *, is_flat: bool) -> str:
    """Choose the name of the attribute that values become: edge_weight has one number per edge."""
    names = ("edge_weight", "edge_attr") if is_flat else ("edge_attr",)
    for name in names:
        if name not in store.names():
            return name
    raise SourceError(
        f"{where}: has values that would become {names[-1]}, and {store.place(names[-1])} is there; rename that one"
    )
