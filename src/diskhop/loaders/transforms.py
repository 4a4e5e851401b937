"""A user's transform of a batch, and what it leaves of the batch's own edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch_geometric.data import Data, HeteroData

from diskhop.loaders.batches import Batch, edge_store


def transformed(data: Batch, transform: Callable[[Any], Any]) -> Any:
    """Return transform(data), without `block` in a batch whose edges the transform has changed.

    `block` has the edges as they were sampled; a model that read it would not see the others.
    """
    key = "adj_t" if "adj_t" in edge_store(data) else "edge_index"
    edges = edge_store(data)[key]
    # A SparseTensor of torch-sparse does not count its changes: its methods make another one.
    version = getattr(edges, "_version", 0)
    result = transform(data)
    for batch in _batches_in(result):
        store = edge_store(batch)
        if "block" in store and (store.get(key) is not edges or getattr(edges, "_version", 0) != version):
            del store["block"]
    return result


def _batches_in(result: Any) -> Iterator[Batch]:
    """Yield the batches among what a transform returned."""
    if isinstance(result, Data | HeteroData):
        yield result
    elif isinstance(result, tuple | list):
        for each in result:
            yield from _batches_in(each)
    elif isinstance(result, dict):
        yield from _batches_in(list(result.values()))
