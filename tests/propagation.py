"""Propagation of small graphs, and the same by dense float64 products."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine, untile_rows
from diskhop.budget import Budget
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edges import ArrayEdges
from diskhop.dataset.encoding import decode_rows
from diskhop.hops.make.propagate import Propagated, propagate
from diskhop.hops.operators import parse_operator
from diskhop.hops.spec import PropagationSpec
from diskhop.hops.tables import HopTables
from diskhop.io.atomic import Injector
from diskhop.io.engine import open_engine


def build(path: Path, pairs: NDArray[np.int64], features: NDArray[Any], dtype: str = "float32") -> Dataset:
    """Build a dataset of edges (2, edges) and feature rows; every third node is a training node."""
    num_nodes, dim = features.shape
    engine = open_engine("threads").engine
    with DatasetBuilder(path, name="small", engine=engine, budget=Budget(1 << 30), threads=1) as builder:
        builder.add_nodes("node", num_nodes)
        builder.add_edge_list("edge", "node", "node", ArrayEdges(pairs))
        builder.add_features("node", [features], dim=dim, dtype=dtype)
        builder.add_labels("node", [np.arange(num_nodes) % 3])
        builder.add_split("node", "train", [np.arange(0, num_nodes, 3)])
        return builder.finish()


def propagate_small(
    dataset: Dataset,
    scratch: Path,
    *,
    memory_bytes: int = 100_000_000,
    threads: int = 1,
    engine: Engine | None = None,
    injector: Injector | None = None,
    **options: Any,
) -> Propagated:
    """Propagate with options of PropagationSpec."""
    return propagate(
        dataset,
        PropagationSpec(**options),
        Budget(memory_bytes),
        scratch=scratch,
        threads=threads,
        engine=engine or open_engine("threads").engine,
        injector=injector,
    )


def table_values(tables: HopTables, number: int) -> NDArray[Any]:
    """Read the values (rows, dim) of a table."""
    shape = tables.shape
    content = np.fromfile(tables.table_path(number), np.uint8)
    if shape.is_row_major:
        rows = content[: shape.num_rows * shape.row_bytes].reshape(-1, shape.row_bytes)
    else:
        groups = []
        for group in content.reshape(shape.num_groups, shape.num_tiles, shape.tile_bytes):
            out = np.empty((shape.tile_bytes // shape.tile_row_bytes, shape.row_bytes), np.uint8)
            untile_rows(group, shape.tile_row_bytes, None, out)
            groups.append(out)
        rows = np.concatenate(groups)[: shape.num_rows]
    return decode_rows(rows, shape.dtype, shape.dim)


def dense_tables(
    pairs: NDArray[np.int64], features: NDArray[Any], operator: str, hops: int, direction: str
) -> list[NDArray[np.float64]]:
    """Compute hops 1 to R by float64 matrices, each from its definition."""
    num_nodes = len(features)
    counts = np.zeros((num_nodes, num_nodes))
    np.add.at(counts, (pairs[1], pairs[0]), 1.0)
    adjacency = {"in": counts, "out": counts.T, "both": ((counts + counts.T) > 0).astype(np.float64)}[direction]
    parsed = parse_operator(operator)
    if parsed.kind == "sgc":
        adjacency = adjacency - np.diag(np.diag(adjacency)) + np.eye(num_nodes)
    degrees = adjacency.sum(axis=1)
    inverse = np.divide(1.0, degrees, out=np.zeros(num_nodes), where=degrees > 0)
    if parsed.kind == "row":
        matrix = inverse[:, None] * adjacency
    else:
        matrix = np.sqrt(inverse)[:, None] * adjacency * np.sqrt(inverse)
    x = features.astype(np.float64)
    powers = [x]
    for _ in range(hops):
        powers.append(matrix @ powers[-1])
    if parsed.kind == "ppr":
        alpha = parsed.parameters["alpha"]
        ranks = [x]
        for _ in range(hops):
            ranks.append((1 - alpha) * (matrix @ ranks[-1]) + alpha * x)
        return ranks[1:]
    if parsed.kind == "heat":
        t = parsed.parameters["t"]
        weights = np.exp(-t) * np.cumprod([1.0, *(t / np.arange(1, hops + 1))])
        terms = np.cumsum([weight * power for weight, power in zip(weights, powers, strict=True)], axis=0)
        return list(terms[1:])
    return powers[1:]
