"""A user's transform of a batch, and what it leaves of the batch's own edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch_geometric.data import Data


def transformed(data: Data, transform: Callable[[Data], Any]) -> Any:
    """Return transform(data), without `block` in a batch whose edges the transform has changed.

    `block` has the edges as they were sampled; a model that read it would not see the others.
    """
    edges = data.edge_index
    assert edges is not None
    version = edges._version
    result = transform(data)
    for batch in _batches_in(result):
        if "block" in batch and (batch.get("edge_index") is not edges or edges._version != version):
            del batch.block
    return result


def _batches_in(result: Any) -> Iterator[Data]:
    """Yield the batches among what a transform returned."""
    if isinstance(result, Data):
        yield result
    elif isinstance(result, tuple | list):
        for each in result:
            yield from _batches_in(each)
    elif isinstance(result, dict):
        yield from _batches_in(list(result.values()))
