"""Mini-batches of loaders, compared."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch_geometric.data import Data, HeteroData


def assert_same_batches(found: Iterable[Data | HeteroData], expected: Iterable[Data | HeteroData]) -> None:
    """Assert that batches are equal in order and in every field, dtypes included, but for the block of layers."""
    for batch, other in zip(found, expected, strict=True):
        for ours, theirs in zip(batch.stores, other.stores, strict=True):
            assert list(ours.keys()) == list(theirs.keys())
            for name, value in ours.items():
                if isinstance(value, torch.Tensor):
                    assert value.dtype == theirs[name].dtype, name
                    assert torch.equal(value, theirs[name]), name
                elif name != "block":
                    assert value == theirs[name], name
