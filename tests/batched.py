"""Models on small graphs by batches, and the same by one forward pass over the whole graph in float64."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from diskhop.budget import Budget
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edges import ArrayEdges
from diskhop.dataset.encoding import decode_rows
from diskhop.predicting.batched.layer_tables import LayerTables
from diskhop.predicting.batched.unroll import Model
from diskhop.predicting.predict import predict_modules
from diskhop.runtime.tasks import TaskTools, WorkFolder
from tests.graphs import threads_engine


def build_graph(
    path: Path,
    pairs: NDArray[np.int64],
    features: NDArray[Any] | None,
    *,
    num_nodes: int = 0,
    dtype: str = "float32",
    order: NDArray[np.int64] | None = None,
) -> Dataset:
    """A dataset of edges (2, edges) and feature rows, or of num_nodes nodes without features.

    order: the node at each row of the dataset, for a hot order.
    """
    count = num_nodes if features is None else len(features)
    if order is not None:
        pairs = np.argsort(order)[pairs]
        features = None if features is None else features[order]
    with DatasetBuilder(path, name="small", engine=threads_engine(), budget=Budget(1 << 30), threads=1) as builder:
        builder.add_nodes("node", count)
        builder.add_edge_list("edge", "node", "node", ArrayEdges(pairs))
        if features is not None:
            builder.add_features("node", [features], dim=features.shape[1], dtype=dtype)
        if order is not None:
            builder.add_original_ids("node", [order], "hot")
        return builder.finish()


def stored_features(dataset: Dataset) -> NDArray[np.float64]:
    """The features as the dataset stores them."""
    table = dataset.feature_table()
    assert table is not None
    rows = np.fromfile(table.path, np.uint8).reshape(table.num_rows, table.row_stride)
    return np.asarray(decode_rows(rows, dataset.feature_dtype, dataset.feature_dim), np.float64)


@contextmanager
def small_batches(entries: int) -> Iterator[None]:
    """Cut batches that have at most `entries` rows and neighbours together, unless one row has more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("diskhop.predicting.batched.row_batches._MOST_ENTRIES", entries)
        yield


def predict_small(dataset: Dataset, layers: Model, work: Path, **options: Any) -> NDArray[np.float32]:
    """Return the rows of the last table, and remove the work folder."""
    with WorkFolder(work) as folder:
        tables = tables_of(dataset, layers, folder, **options)
        rows = values(tables)
        folder.remove()
    return rows


def tables_of(
    dataset: Dataset, layers: Model, work: WorkFolder, *, memory_bytes: int = 80_000_000, **options: Any
) -> LayerTables:
    """predict_modules() with two threads and the engine that runs everywhere."""
    options = {"threads": 2, "tools": TaskTools(threads_engine()), **options}
    return predict_modules(dataset, layers, Budget(memory_bytes), work, **options)


def values(tables: LayerTables, number: int | None = None) -> NDArray[np.float32]:
    """Read a table whole; None: the last."""
    rows = tables.last if number is None else tables.tables[number]
    return np.concatenate([np.empty((0, rows.dim), np.float32), *(block.copy() for block in rows.blocks(7))])


def whole_graph(
    layers: nn.Module | Sequence[nn.Module], x: NDArray[np.float64], pairs: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Forward pass over the whole graph by PyG, float64, in eval mode."""
    rows, edges = torch.from_numpy(x), torch.from_numpy(pairs)
    with torch.no_grad():
        for layer in [layers] if isinstance(layers, nn.Module) else layers:
            rows = copy.deepcopy(layer).double().eval()(rows, edges)
    return rows.numpy()


def assert_close(actual: NDArray[np.float32], expected: NDArray[np.float64]) -> None:
    """Equal to 1e-5 in proportion to the largest value."""
    np.testing.assert_allclose(
        actual, expected, rtol=1e-5, atol=1e-5 * max(1.0, float(np.abs(expected).max(initial=0)))
    )


class WithNorm(nn.Module):
    """A user's layer: a convolution by degrees, a norm with running statistics, an activation and dropout."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.conv = GCNConv(in_dim, out_dim)
        self.norm = nn.BatchNorm1d(out_dim)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.norm(self.conv(x, edge_index)).relu())
        return out


def disturb(model: nn.Module) -> None:
    """Give norms statistics that differ from the initial ones."""
    for each in model.modules():
        if isinstance(each, nn.BatchNorm1d):
            assert each.running_mean is not None
            assert each.running_var is not None
            nn.init.normal_(each.running_mean)
            nn.init.uniform_(each.running_var, 0.5, 2.0)
