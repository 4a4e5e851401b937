"""Graphs with weights and times, open in every way that samplers read them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool
from diskhop.budget import Budget
from diskhop.dataset.edge_set import ColumnFile, TopologyFiles
from diskhop.sampling.cached_topology import AnyTopology, NeighborCacheOptions, open_cached_topology
from diskhop.sampling.columns import TIMES, WEIGHTS, columns_bytes
from diskhop.sampling.topology import open_topology
from tests.graphs import threads_engine
from tests.unit.ways_oracle import Graph

# Where lists and columns are: mode, and bytes of cached lists.
PLACES = {"memory": 0, "mapped": 0, "cached": 400, "uncached": 0}


def write_graph(folder: Path, graph: Graph) -> TopologyFiles:
    """Write the lists, and the weights and times that the graph has."""
    graph.indptr.tofile(folder / "indptr.bin")
    graph.indices.tofile(folder / "indices.bin")
    columns = []
    for use, of, numbers in (
        (WEIGHTS, "edges", graph.weights),
        (TIMES, "edges", graph.edge_times),
        (TIMES, "nodes", graph.node_times),
    ):
        if numbers is not None:
            columns.append(write_column(folder / f"{of}-{use}.bin", use, of, numbers))
    return TopologyFiles(
        indptr_path=folder / "indptr.bin",
        indices_path=folder / "indices.bin",
        index_dtype=graph.indices.dtype,
        num_nodes=len(graph.indptr) - 1,
        num_edges=len(graph.indices),
        columns=tuple(columns),
    )


def write_column(path: Path, use: str, of: str, numbers: NDArray[Any]) -> ColumnFile:
    numbers.tofile(path)
    return ColumnFile(use=use, name=use, of=of, path=path, dtype=numbers.dtype, num_values=len(numbers))


@contextmanager
def open_place(files: TopologyFiles, place: str, pool: BufferPool | None = None) -> Iterator[AnyTopology]:
    """Open lists and columns in one of PLACES, within the memory that columns_bytes() names."""
    budget, engine = Budget(1 << 30), threads_engine()
    if place in ("memory", "mapped"):
        opened: Any = open_topology(files, place, engine, budget)  # type: ignore[arg-type]
    else:
        options = NeighborCacheOptions(cache_bytes=PLACES[place], max_gap_bytes=4096)
        opened = open_cached_topology(files, options, engine, budget, pool or BufferPool(0))
    with opened as topology:
        yield topology
    assert budget.available_bytes == budget.total_bytes
    mode: Any = "cached" if place == "uncached" else place
    reserved = {name: num_bytes for name, num_bytes in budget.table().items() if name != "topology" and num_bytes}
    assert reserved == columns_bytes(files.columns, mode)


def random_graph(num_nodes: int, num_edges: int, seed: int = 0, *, node_times: bool = False) -> Graph:
    """Skewed: some lists are long, many are empty; a third of the weights are 0, and times repeat."""
    rng = np.random.default_rng(seed)
    destinations = np.sort((rng.random(num_edges) ** 3 * num_nodes).astype(np.int64))
    weights = rng.exponential(size=num_edges).astype(np.float32) * (rng.random(num_edges) < 2 / 3)
    return Graph(
        indptr=np.searchsorted(destinations, np.arange(num_nodes + 1)).astype(np.int64),
        indices=rng.integers(0, num_nodes, num_edges).astype(np.uint32),
        weights=weights.astype(np.float32),
        edge_times=None if node_times else rng.integers(0, 20, num_edges),
        node_times=rng.integers(0, 20, num_nodes) if node_times else None,
    )
