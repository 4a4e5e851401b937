"""Writes the nodes of one type of a generated graph: labels, splits and features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.build.checks import RESERVED_FOR_SPLIT, split_bytes
from diskhop.dataset.encoding import encode_rows, row_bytes
from diskhop.dataset.manifest import SPLIT_NAMES
from diskhop.generating.config import GraphConfig
from diskhop.generating.nodes import GeneratedNodes
from diskhop.runtime.blocks import map_in_order, row_ranges, threads_that_fit
from diskhop.runtime.progress import Progress, tracked

_NODES_PER_BLOCK = 1 << 16
_FEATURE_BLOCK_BYTES = 1 << 20
# Bytes per node of a block: id, class, and place in the split.
_BYTES_PER_NODE = 40
_LABEL_BYTES = _NODES_PER_BLOCK * _BYTES_PER_NODE


def node_bytes(config: GraphConfig) -> int:
    """Compute the bytes of the nodes on disk, up to a few pages."""
    feature_bytes = row_bytes(config.dtype, config.dim) if config.dim else 0
    ids_per_node = config.order == "hot"
    labels_per_node = 1 + config.train_fraction + 2 * config.eval_share if config.num_classes else 0
    return int((feature_bytes + 8 * (ids_per_node + labels_per_node)) * config.num_nodes)


def node_phases(config: GraphConfig) -> list[dict[str, int]]:
    """Predict what each phase of write_nodes() reserves with one thread, by name."""
    means = {"class means": _mean_bytes(config)}
    labels = {"labels and splits": _LABEL_BYTES}
    if config.num_classes:
        labels[RESERVED_FOR_SPLIT] = split_bytes(config.num_nodes)
    features = {"features": _feature_bytes(config, 1)} if config.dim else {}
    return [{**means, **labels}, {**means, **features}]


def write_nodes(
    builder: DatasetBuilder,
    node_type: str,
    config: GraphConfig,
    original_ids: NDArray[Any] | None = None,
    *,
    budget: Budget,
    threads: int,
    progress: Progress,
) -> None:
    """Write what nodes of a type have. original_ids: id of every node in hot order; None: ids are nodes."""

    def blocks(make: Callable[[int, int], NDArray[Any]]) -> Iterator[NDArray[Any]]:
        return (make(start, stop) for start, stop in row_ranges(config.num_nodes, _NODES_PER_BLOCK))

    with budget.reserve("class means", _mean_bytes(config)):
        nodes = GeneratedNodes(config, original_ids)
        with budget.reserve("labels and splits", _LABEL_BYTES):
            if config.order == "hot":
                builder.add_original_ids(node_type, blocks(nodes.original_ids), order="hot")
            if config.num_classes:
                builder.add_labels(node_type, blocks(nodes.classes), config.num_classes)
                for part in SPLIT_NAMES:
                    if nodes.part_length(part):
                        builder.add_split(node_type, part, blocks(partial(nodes.part, part)))
        if config.dim:
            _write_features(builder, node_type, config, nodes, budget, threads, progress)


def _write_features(
    builder: DatasetBuilder,
    node_type: str,
    config: GraphConfig,
    nodes: GeneratedNodes,
    budget: Budget,
    threads: int,
    progress: Progress,
) -> None:
    def encoded(rows: tuple[int, int]) -> NDArray[np.uint8]:
        return encode_rows(nodes.features(*rows), config.dtype)

    needed_bytes = partial(_feature_bytes, config)
    threads = threads_that_fit(threads, budget.available_bytes, needed_bytes)
    with budget.reserve("features", needed_bytes(threads)):
        made = map_in_order(encoded, row_ranges(config.num_nodes, _rows_per_block(config)), threads)
        features = tracked(made, progress, "features", config.num_nodes)
        builder.add_encoded_features(node_type, features, dim=config.dim, dtype=config.dtype)


def _mean_bytes(config: GraphConfig) -> int:
    return 4 * config.num_classes * config.dim


def _feature_bytes(config: GraphConfig, threads: int) -> int:
    # A block per thread, one waiting and one being written, each as drawn and as encoded.
    rows_at_once = min(config.num_nodes, (threads + 2) * _rows_per_block(config))
    return 2 * rows_at_once * (4 * config.dim + _BYTES_PER_NODE)


def _rows_per_block(config: GraphConfig) -> int:
    return max(1, _FEATURE_BLOCK_BYTES // (4 * config.dim))
