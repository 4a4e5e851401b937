"""Generates typed graphs: edges of each type, drawn by number, then what each type of nodes has.

An edge type is an R-MAT graph over as many nodes as its more numerous end has, cut to the other end's number. The ids
of a type are then permuted, in all its edge types alike: a popular node is popular everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine, permute_ids, rmat_edges
from diskhop.budget import Budget
from diskhop.dataset.build.builder import WRITING, DatasetBuilder
from diskhop.dataset.build.files import WRITER_BYTES
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.manifest import index_dtype
from diskhop.generating.config import DEFAULT_RMAT, TYPED
from diskhop.generating.edges import DrawnEdges
from diskhop.generating.graph import sorting_bytes
from diskhop.generating.typed_config import Ends, TypedConfig, seed_of
from diskhop.generating.write_nodes import node_bytes, node_phases, write_nodes
from diskhop.io.atomic import Injector
from diskhop.runtime.progress import Progress, silent
from diskhop.system.memory import default_memory_bytes, default_threads


def generate_typed_graph(
    destination: Path,
    config: TypedConfig,
    *,
    engine: Engine,
    budget: Budget | None = None,
    threads: int | None = None,
    name: str | None = None,
    injector: Injector | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
) -> Dataset:
    """Generate a typed graph; it appears complete, or not at all. Threads and budget do not change its bytes.

    Arguments and errors are those of generate_graph(); name: default: the shape.
    """
    budget = budget or Budget(default_memory_bytes())
    threads = threads or default_threads()
    report = progress or silent
    builder = DatasetBuilder(
        destination,
        name=name or config.shape,
        engine=engine,
        budget=budget,
        threads=threads,
        origin=TYPED,
        injector=injector,
        progress=report,
        overwrite=overwrite,
    )
    builder.require_space(typed_result_bytes(config))
    budget.require({WRITING: WRITER_BYTES, **_most_reserved(config)})
    with builder:
        for node_type, count in config.node_counts().items():
            builder.add_nodes(node_type, count)
        for ends in config.types.edges:
            source, _, destination_type = ends
            builder.add_edge_list("__".join(ends), source, destination_type, typed_edges(config, ends))
        for node_type in config.node_counts():
            nodes = config.nodes_config(node_type)
            write_nodes(builder, node_type, nodes, budget=budget, threads=threads, progress=report)
        return builder.finish()


def typed_edges(config: TypedConfig, ends: Ends) -> DrawnEdges:
    """Return the edges of a type, in the order of their numbers."""
    counts, num_edges = config.node_counts(), config.edge_counts()[ends]
    source, _, destination = ends
    num_sources, num_destinations = counts[source], counts[destination]
    num_rows = max(num_sources, num_destinations)
    seed = seed_of(config.seed, "__".join(ends))

    def fill(first: int, sources: NDArray[Any], destinations: NDArray[Any]) -> None:
        rmat_edges(num_rows, DEFAULT_RMAT, seed, first, sources, destinations, is_permuted=False)
        for node_type, count, ids in ((source, num_sources, sources), (destination, num_destinations, destinations)):
            if count < num_rows:
                ids[:] = ids.astype(np.int64) * count // num_rows
            permute_ids(count, seed_of(config.seed, node_type), "ids", ids)

    identity = f"{ends}: {num_edges} edges of {num_sources} and {num_destinations} nodes, seed {config.seed}"
    return DrawnEdges(num_rows, num_edges, identity, fill)


def typed_result_bytes(config: TypedConfig) -> int:
    """Compute the bytes of the dataset on disk, up to a few pages."""
    counts = config.node_counts()
    num_bytes = sum(node_bytes(config.nodes_config(node_type)) for node_type in counts)
    for (source, _, destination), num_edges in config.edge_counts().items():
        id_bytes = np.dtype(index_dtype(counts[source])).itemsize
        num_bytes += 8 * (counts[destination] + 1) + id_bytes * num_edges
    return num_bytes


def _most_reserved(config: TypedConfig) -> dict[str, int]:
    """Predict the largest reservations with one thread, by name."""
    counts = config.node_counts()
    phases = [
        sorting_bytes(counts[source], counts[destination], num_edges)
        for (source, _, destination), num_edges in config.edge_counts().items()
    ]
    phases += [phase for node_type in counts for phase in node_phases(config.nodes_config(node_type))]
    return max(phases, key=lambda wanted: sum(wanted.values()))
