"""Writes a generated graph as a dataset: edges, then labels, splits and features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.build.builder import WRITING, DatasetBuilder
from diskhop.dataset.build.checks import RESERVED_FOR_SPLIT, split_bytes
from diskhop.dataset.build.edge_lists import WRITING_LISTS, lists_bytes
from diskhop.dataset.build.files import WRITER_BYTES
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.encoding import encode_rows, row_bytes
from diskhop.dataset.manifest import SPLIT_NAMES, index_dtype
from diskhop.dataset.sort.hot_order import RenumberedEdges, find_hot_order, hot_order_bytes
from diskhop.dataset.sort.keys import EdgeShape
from diskhop.dataset.sort.plan import SortLimits, smallest_sort_bytes
from diskhop.generating.config import GraphConfig
from diskhop.generating.edges import generated_edges
from diskhop.generating.nodes import GeneratedNodes
from diskhop.io.atomic import Injector
from diskhop.runtime.blocks import map_in_order, row_ranges, threads_that_fit
from diskhop.runtime.progress import Progress, silent, tracked
from diskhop.system.memory import default_memory_bytes, default_threads

NODE, EDGE = "node", "edge"
_NODES_PER_BLOCK = 1 << 16
_FEATURE_BLOCK_BYTES = 1 << 20
# Bytes per node of a block: id, class, and place in the split.
_BYTES_PER_NODE = 40
_LABEL_BYTES = _NODES_PER_BLOCK * _BYTES_PER_NODE


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
        builder.add_edge_list(EDGE, NODE, NODE, edges)
        if config.order == "hot":
            held.enter_context(budget.reserve("original ids", order.new_ids.nbytes))
            original_ids = order.original_ids()
        held.enter_context(budget.reserve("class means", _mean_bytes(config)))
        nodes = GeneratedNodes(config, original_ids)
        _write_nodes(builder, config, nodes, budget, threads, report)
        return builder.finish()


def result_bytes(config: GraphConfig) -> int:
    """Compute the bytes of the dataset on disk, up to a few pages."""
    num_edges = config.num_edges * (1 if config.directed else 2)
    topology_bytes = 8 * (config.num_nodes + 1) + _id_bytes(config) * num_edges
    node_bytes = row_bytes(config.dtype, config.dim) if config.dim else 0
    ids_per_node = config.order == "hot"
    labels_per_node = 1 + config.train_fraction + 2 * config.eval_share if config.num_classes else 0
    return topology_bytes + int((node_bytes + 8 * (ids_per_node + labels_per_node)) * config.num_nodes)


def _most_reserved(config: GraphConfig) -> dict[str, int]:
    """Predict the largest reservations with one thread, by name."""
    num_edges = generated_edges(config).num_edges
    shape = EdgeShape(
        num_sources=config.num_nodes,
        num_destinations=config.num_nodes,
        num_edges=num_edges,
        is_numbered=False,
        origin="",
    )
    sorting = {
        WRITING_LISTS: lists_bytes(shape, 0),
        "sorting edges": smallest_sort_bytes(num_edges, shape.layout().key_bytes, SortLimits()),
    }
    ranking = {}
    nodes = {"class means": _mean_bytes(config)}
    if config.order == "hot":
        ranking["hot order"] = hot_order_bytes(config.num_nodes, num_edges, 1)
        nodes["hot order"] = nodes["original ids"] = config.num_nodes * _id_bytes(config)
        sorting = {"hot order": nodes["hot order"], **sorting}
    labels = {"labels and splits": _LABEL_BYTES}
    if config.num_classes:
        labels[RESERVED_FOR_SPLIT] = split_bytes(config.num_nodes)
    features = {"features": _feature_bytes(config, 1)} if config.dim else {}
    return max(ranking, sorting, {**nodes, **labels}, {**nodes, **features}, key=lambda wanted: sum(wanted.values()))


def _id_bytes(config: GraphConfig) -> int:
    return np.dtype(index_dtype(config.num_nodes)).itemsize


def _mean_bytes(config: GraphConfig) -> int:
    return 4 * config.num_classes * config.dim


def _feature_bytes(config: GraphConfig, threads: int) -> int:
    # A block per thread, one waiting and one being written, each as drawn and as encoded.
    rows_at_once = min(config.num_nodes, (threads + 2) * _rows_per_block(config))
    return 2 * rows_at_once * (4 * config.dim + _BYTES_PER_NODE)


def _rows_per_block(config: GraphConfig) -> int:
    return max(1, _FEATURE_BLOCK_BYTES // (4 * config.dim))


def _write_nodes(
    builder: DatasetBuilder,
    config: GraphConfig,
    nodes: GeneratedNodes,
    budget: Budget,
    threads: int,
    progress: Progress,
) -> None:
    num_nodes = config.num_nodes

    def blocks(make: Callable[[int, int], NDArray[Any]]) -> Iterator[NDArray[Any]]:
        return (make(start, stop) for start, stop in row_ranges(num_nodes, _NODES_PER_BLOCK))

    with budget.reserve("labels and splits", _LABEL_BYTES):
        if config.order == "hot":
            builder.add_original_ids(NODE, blocks(nodes.original_ids), order="hot")
        if config.num_classes:
            builder.add_labels(NODE, blocks(nodes.classes), config.num_classes)
            for part in SPLIT_NAMES:
                if nodes.part_length(part):
                    builder.add_split(NODE, part, blocks(partial(nodes.part, part)))
    if config.dim:

        def encoded(rows: tuple[int, int]) -> NDArray[np.uint8]:
            return encode_rows(nodes.features(*rows), config.dtype)

        needed_bytes = partial(_feature_bytes, config)
        threads = threads_that_fit(threads, budget.available_bytes, needed_bytes)
        with budget.reserve("features", needed_bytes(threads)):
            made = map_in_order(encoded, row_ranges(num_nodes, _rows_per_block(config)), threads)
            features = tracked(made, progress, "features", num_nodes)
            builder.add_encoded_features(NODE, features, dim=config.dim, dtype=config.dtype)
