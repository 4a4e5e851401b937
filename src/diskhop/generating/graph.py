"""Writes a generated graph as a dataset: edges, then labels, splits and features."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.build.builder import WRITING, DatasetBuilder
from diskhop.dataset.build.edge_lists import WRITING_LISTS, lists_bytes
from diskhop.dataset.build.files import WRITER_BYTES
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.manifest import EDGE, NODE, index_dtype
from diskhop.dataset.sort.hot_order import RenumberedEdges, find_hot_order, hot_order_bytes
from diskhop.dataset.sort.keys import EdgeShape
from diskhop.dataset.sort.plan import SortLimits, smallest_sort_bytes
from diskhop.dataset.sort.tidy import Tidying
from diskhop.generating.config import GraphConfig
from diskhop.generating.edges import generated_edges
from diskhop.generating.write_nodes import node_bytes, node_phases, write_nodes
from diskhop.io.atomic import Injector
from diskhop.runtime.progress import Progress, silent
from diskhop.system.memory import default_memory_bytes, default_threads


def generate_graph(
    destination: Path,
    config: GraphConfig,
    *,
    engine: Engine,
    budget: Budget | None = None,
    threads: int | None = None,
    name: str | None = None,
    injector: Injector | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
) -> Dataset:
    """Generate a graph; it appears complete, or not at all. Threads and budget do not change its bytes.

    budget: memory; default: half of the free memory.
    threads: default: all cores.
    name: the dataset's name; default: the kind.
    overwrite: whether a dataset at the destination is replaced.

    Raises BudgetError, with the smallest budget that suffices, and DestinationError if the disk is too small.
    """
    budget = budget or Budget(default_memory_bytes())
    threads = threads or default_threads()
    report = progress or silent
    origin = name or config.kind
    edges = generated_edges(config)
    num_nodes = config.num_nodes
    builder = DatasetBuilder(
        destination,
        name=origin,
        engine=engine,
        budget=budget,
        threads=threads,
        injector=injector,
        progress=report,
        overwrite=overwrite,
    )
    builder.require_space(result_bytes(config))
    budget.require({WRITING: WRITER_BYTES, **_most_reserved(config)})
    with builder, ExitStack() as held:
        builder.add_nodes(NODE, num_nodes)
        original_ids = None
        if config.order == "hot":
            order = held.enter_context(
                find_hot_order(edges, num_nodes, budget=budget, threads=threads, origin=origin, progress=report)
            )
            edges = RenumberedEdges(edges, order.new_ids, origin)
        builder.add_edge_list(EDGE, NODE, NODE, edges, tidied=Tidying(both_ways=not config.directed))
        if config.order == "hot":
            held.enter_context(budget.reserve("original ids", order.new_ids.nbytes))
            original_ids = order.original_ids()
        write_nodes(builder, NODE, config, original_ids, budget=budget, threads=threads, progress=report)
        return builder.finish()


def result_bytes(config: GraphConfig) -> int:
    """Compute the bytes of the dataset on disk, up to a few pages."""
    num_edges = config.num_edges * (1 if config.directed else 2)
    topology_bytes = 8 * (config.num_nodes + 1) + _id_bytes(config) * num_edges
    return topology_bytes + node_bytes(config)


def _most_reserved(config: GraphConfig) -> dict[str, int]:
    """Predict the largest reservations with one thread, by name."""
    num_edges = generated_edges(config).num_edges
    phases = node_phases(config)
    sorting = sorting_bytes(config.num_nodes, config.num_nodes, num_edges)
    ranking = {}
    if config.order == "hot":
        ranking["hot order"] = hot_order_bytes(config.num_nodes, num_edges, 1)
        ids = config.num_nodes * _id_bytes(config)
        phases = [{"hot order": ids, "original ids": ids, **each} for each in phases]
        sorting = {"hot order": ids, **sorting}
    return max(ranking, sorting, *phases, key=lambda wanted: sum(wanted.values()))


def sorting_bytes(num_sources: int, num_destinations: int, num_edges: int) -> dict[str, int]:
    """Predict what sorting and writing edges reserves with one thread, by name."""
    shape = EdgeShape(
        num_sources=num_sources,
        num_destinations=num_destinations,
        num_edges=num_edges,
        is_numbered=False,
        origin="",
    )
    return {
        WRITING_LISTS: lists_bytes(shape, 0),
        "sorting edges": smallest_sort_bytes(num_edges, shape.layout().key_bytes, SortLimits()),
    }


def _id_bytes(config: GraphConfig) -> int:
    return np.dtype(index_dtype(config.num_nodes)).itemsize
