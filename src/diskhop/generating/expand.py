"""Expands a graph to a multiple of its size: the Kronecker product of a small kernel and the graph (Leskovec et al.).

Ginex (section 5.1) makes its graphs in this way, because the product keeps the shape of the graph's degrees and its
communities. Node v of the graph becomes K *copies*: copy c is node c * N + v. The kernel is a star with loops: every
copy has the graph's edges within itself, copy 0 also from and to every other copy. An edge thus becomes 3 K - 2 edges,
and the nodes of copy 0 have K times the neighbours. Copies have the features, labels and split of their node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.build.builder import WRITING, DatasetBuilder
from diskhop.dataset.build.checks import RESERVED_FOR_SPLIT, split_bytes
from diskhop.dataset.build.files import WRITER_BYTES
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edges import EdgeSource
from diskhop.dataset.files import read_rows
from diskhop.dataset.listed_edges import ListedEdges
from diskhop.dataset.manifest import EDGE, MOST_COUNT, NODE, NodeType, index_dtype, split_file
from diskhop.errors import ConfigError
from diskhop.generating.expand_config import ExpandConfig
from diskhop.generating.graph import sorting_bytes
from diskhop.io.atomic import Injector
from diskhop.runtime.progress import Progress, silent, tracked
from diskhop.system.memory import default_memory_bytes, default_threads

_BLOCK_BYTES = 8 << 20


class ExpandedEdges:
    """EdgeSource of the product of the kernel and a graph: edge e becomes 3 K - 2 consecutive ones.

    edges: edges of the graph.
    num_nodes: nodes of the graph.
    factor: K, the number of copies.
    """

    def __init__(self, edges: EdgeSource, num_nodes: int, factor: int) -> None:
        self._edges = edges
        self._dtype = index_dtype(factor * num_nodes)
        kernel = star_kernel(factor)
        destinations, sources = np.nonzero(kernel)
        self._source_starts = (sources * num_nodes).astype(self._dtype)
        self._destination_starts = (destinations * num_nodes).astype(self._dtype)
        self._factor = factor

    @property
    def num_edges(self) -> int:
        """See EdgeSource."""
        return self._edges.num_edges * len(self._source_starts)

    @property
    def identity(self) -> str:
        """See EdgeSource."""
        return f"{self._edges.identity}, {self._factor} copies in a star"

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """See EdgeSource."""
        ways = len(self._source_starts)
        begin, end = first // ways, -(-(first + count) // ways)
        ends = self._edges.read(begin, end - begin)
        wanted = slice(first - begin * ways, first - begin * ways + count)
        sources, destinations = (
            (nodes.astype(self._dtype)[:, None] + starts).reshape(-1)[wanted]
            for nodes, starts in zip(ends, (self._source_starts, self._destination_starts), strict=True)
        )
        return sources, destinations


def star_kernel(factor: int) -> NDArray[np.bool_]:
    """Return the kernel (copies, copies), rows for destinations: the diagonal, the first row and the first column."""
    kernel = np.eye(factor, dtype=np.bool_)
    kernel[0] = kernel[:, 0] = True
    return kernel


def expand_graph(
    graph: Dataset,
    destination: Path,
    config: ExpandConfig,
    *,
    engine: Engine,
    budget: Budget | None = None,
    threads: int | None = None,
    name: str | None = None,
    injector: Injector | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
) -> Dataset:
    """Expand a graph; the result appears complete, or not at all. Threads and budget do not change its bytes.

    Weights, times, ids and names of the graph are left out. Rows of the graph are numbered as it stores them.
    name: the dataset's name; default: the graph's, with the factor.

    Raises ConfigError for a graph with several types or triples, BudgetError, and DestinationError if the disk is too
    small.
    """
    nodes = _only_nodes(graph)
    factor, report = config.factor, progress or silent
    num_nodes = factor * nodes.count
    edges = ExpandedEdges(ListedEdges(graph.topology, graph.hash), nodes.count, factor)
    _require_fitting(graph, factor, max(num_nodes, edges.num_edges))
    budget = budget or Budget(default_memory_bytes())
    builder = DatasetBuilder(
        destination,
        name=name or f"{graph.name} x{factor}",
        engine=engine,
        budget=budget,
        threads=threads or default_threads(),
        origin=str(graph.path),
        injector=injector,
        progress=report,
        overwrite=overwrite,
    )
    builder.require_space(expanded_bytes(graph, config))
    budget.require({WRITING: WRITER_BYTES, **_most_reserved(nodes, num_nodes, edges.num_edges)})
    with builder:
        builder.add_nodes(NODE, num_nodes)
        builder.add_edge_list(EDGE, NODE, NODE, edges)
        with budget.reserve("copied rows", _copying_bytes(nodes)):
            _copy_nodes(graph, nodes, builder, factor, report)
        return builder.finish()


def expanded_bytes(graph: Dataset, config: ExpandConfig) -> int:
    """Compute the bytes of the expansion on disk, up to a few pages."""
    nodes, num_nodes = _only_nodes(graph), config.factor * graph.num_nodes
    num_edges = graph.num_edges * (3 * config.factor - 2)
    topology_bytes = 8 * (num_nodes + 1) + np.dtype(index_dtype(num_nodes)).itemsize * num_edges
    row_bytes = 0 if nodes.features is None else nodes.features.row_bytes
    label_bytes = 0 if nodes.labels is None else nodes.labels.row_bytes
    split_ids = sum(count for split in nodes.splits for count in split.values())
    return topology_bytes + num_nodes * (row_bytes + label_bytes) + 8 * config.factor * split_ids


def _only_nodes(graph: Dataset) -> NodeType:
    """Return the only node type of the manifest, without values that no expansion has."""
    kinds = graph.manifest.node_types, graph.manifest.edge_types
    if any(len(kind) != 1 for kind in kinds):
        raise ConfigError(
            f"{graph.path}: a graph to expand has one type of nodes and one of edges, this one has "
            f"{len(kinds[0])} and {len(kinds[1])}; expand another, or run 'diskhop generate typed DEST'"
        )
    (nodes,) = kinds[0].values()
    return nodes


def _require_fitting(graph: Dataset, factor: int, most: int) -> None:
    if most > MOST_COUNT:
        raise ConfigError(
            f"--factor must keep nodes and edges within {MOST_COUNT}, {factor} of {graph.path} makes {most}; "
            f"use --factor {max(2, factor // 2)}"
        )


def _most_reserved(nodes: NodeType, num_nodes: int, num_edges: int) -> dict[str, int]:
    """Predict the largest reservations with one thread, by name."""
    copying = {"copied rows": _copying_bytes(nodes)}
    if nodes.splits:
        copying[RESERVED_FOR_SPLIT] = split_bytes(num_nodes)
    return max(sorting_bytes(num_nodes, num_nodes, num_edges), copying, key=lambda wanted: sum(wanted.values()))


def _copying_bytes(nodes: NodeType) -> int:
    """Bytes of a block as it is stored, and of the one that is written."""
    row_bytes = 8 if nodes.features is None else nodes.features.row_stride
    return 2 * max(_BLOCK_BYTES, row_bytes)


def _copy_nodes(graph: Dataset, nodes: NodeType, builder: DatasetBuilder, factor: int, progress: Progress) -> None:
    """Write what copies have from their nodes, streamed once for each copy."""
    (node_type,) = graph.manifest.node_types
    folder = graph.content / "nodes" / node_type

    def copies(path: Path, row_bytes: int, count: int) -> Iterator[NDArray[np.uint8]]:
        at_once = max(1, _BLOCK_BYTES // row_bytes)
        return (block for _ in range(factor) for block in read_rows(path, row_bytes, count, at_once))

    features, labels = nodes.features, nodes.labels
    if features is not None:
        stored = copies(folder / "features.bin", features.row_stride, nodes.count)
        rows = (np.ascontiguousarray(block[:, : features.row_bytes]) for block in stored)
        encoded = tracked(rows, progress, "features", factor * nodes.count)
        builder.add_encoded_features(NODE, encoded, dim=features.dim, dtype=features.dtype)
    if labels is not None:
        blocks = copies(folder / "labels.bin", labels.row_bytes, nodes.count)
        if labels.num_tasks:
            add: Callable[..., None] = builder.add_values if labels.are_values else builder.add_tasks
            add(NODE, (block.view("<f4") for block in blocks), labels.num_tasks)
        else:
            builder.add_labels(NODE, (block.reshape(-1).view("<i8") for block in blocks), labels.num_classes)
    for number, split in enumerate(nodes.splits):
        for part, count in split.items():
            path = graph.content / split_file(node_type, part, number, len(nodes.splits))
            ids = (
                block.reshape(-1).view("<i8") + copy * nodes.count
                for copy in range(factor)
                for block in read_rows(path, 8, count, _BLOCK_BYTES // 8)
            )
            builder.add_split(NODE, part, ids, number, len(nodes.splits))
