"""From a source's graph to a dataset: edges sorted into lists, nodes in their order, everything within the budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.build.checks import RESERVED_FOR_SPLIT, checked_labels, checked_tasks, encoded_rows, split_bytes
from diskhop.dataset.build.feature_ranges import FEATURES, STAGE
from diskhop.dataset.edges import EdgeSource, UndirectedEdges, highest_ids
from diskhop.dataset.encoding import row_bytes
from diskhop.dataset.manifest import MOST_COUNT, index_dtype
from diskhop.dataset.sort.hot_order import HotOrder, RenumberedEdges, find_hot_order, hot_order_bytes
from diskhop.dataset.sort.moved_rows import RowMover
from diskhop.dataset.sort.tidy import EdgeCounts, Tidying
from diskhop.errors import ConfigError, SourceError
from diskhop.importing.columns import RandomFeatures, count_tasks
from diskhop.importing.options import ImportOptions, as_option
from diskhop.importing.source import BY_EDGES, Column, NameList, OriginalNames, SourceEdges, SourceGraph, SourceNodes
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.progress import Progress, tracked
from diskhop.runtime.work_tools import WorkTools

_NODES_PER_BLOCK = 1 << 16
# The part of the budget that a hot order may take once more, for workers.
_SHARED_ORDER = 4


def write_graph(
    graph: SourceGraph, builder: DatasetBuilder, options: ImportOptions, shop: WorkTools, origin: str
) -> dict[str, Any]:
    """Bring everything to the builder; what the import found, where that is counted.

    origin: the source, for errors. Raises SourceError for what breaks a rule of the format, ConfigError for an option
    that the graph cannot have, BudgetError.
    """
    graph = _counted(graph, builder, options, shop, origin)
    if options.random_features is not None:
        graph = _with_random_features(graph, options.random_features, origin)
    _check_options(graph, options, origin)
    for node_type, nodes in graph.nodes.items():
        builder.add_nodes(node_type, nodes.count)
    shop.budget.require(_most_held(graph, options))
    # Rows that are moved are not written in ranges.
    kept_bytes = 0 if options.order == "hot" else shop.work.kept_bytes(f"{STAGE}*")
    builder.require_space(result_bytes(graph, options) - kept_bytes)
    tidying = _tidying(options, graph)
    counts = {}
    with ExitStack() as held:
        order = None
        for edge_type, given in graph.edges.items():
            edges = _edges_of(given, options)
            if options.order == "hot":
                order = held.enter_context(_find_order(edges, graph, tidying, shop, origin))
            with ExitStack() as values:
                if order is not None:
                    is_shared = _share_order(order, values, shop)
                    edges = RenumberedEdges(edges, order.new_ids, origin, is_shared=is_shared)
                counts[edge_type] = builder.add_edge_list(
                    edge_type,
                    given.source,
                    given.destination,
                    edges,
                    weights=_held_values("edge weights", given.weights, np.float32, values, shop),
                    times=_held_values("edge times", given.times, np.int64, values, shop),
                    tidying=tidying,
                    origin=given.origin,
                )
        # After the sort, which takes what the budget has.
        moved = None if order is None else _Moved(order, edges.identity, held, shop)
        for node_type, nodes in graph.nodes.items():
            writer = _NodeWriter(node_type, nodes, builder, options, moved, shop)
            writer.write_features()
            writer.write_labels()
            writer.write_splits()
            writer.write_called()
        _write_triples(graph, builder, moved, shop)
    for what, names in graph.names.items():
        builder.add_names(what, _tracked_lines(names, shop.progress, f"names of {what}"), names.count)
    return _facts(graph, options, counts)


def _counted(
    graph: SourceGraph, builder: DatasetBuilder, options: ImportOptions, shop: WorkTools, origin: str
) -> SourceGraph:
    """With the count of each type of nodes: what only edges tell is their highest id + 1."""
    highest = {name: -1 for name, nodes in graph.nodes.items() if nodes.count == BY_EDGES}
    for edge_type, given in graph.edges.items():
        ends = (given.source, given.destination)
        if len(graph.nodes) == len(graph.edges) == len(highest) == 1 and options.order != "hot":
            is_numbered = given.weights is not None or given.times is not None
            edges = _edges_of(given, options)
            highest[given.source] = builder.highest_id(edge_type, edges, is_numbered=is_numbered, origin=given.origin)
        elif highest.keys() & ends:
            found = highest_ids(given.edges, shop.budget, shop.threads, shop.progress)
            for end, each in zip(ends, found, strict=True):
                if end in highest:
                    highest[end] = max(highest[end], each)
    for name, most in highest.items():
        if most >= MOST_COUNT:
            raise SourceError(
                f"{origin}: id {most} of nodes '{name}' is out of range: ids must be less than {MOST_COUNT}; "
                "number the nodes from 0"
            )
    nodes = {name: replace(graph.nodes[name], count=found + 1) for name, found in highest.items()}
    return replace(graph, nodes={**graph.nodes, **nodes})


def _edges_of(given: SourceEdges, options: ImportOptions) -> EdgeSource:
    return UndirectedEdges(given.edges) if options.undirected else given.edges


def result_bytes(graph: SourceGraph, options: ImportOptions) -> int:
    """About what the dataset takes on the disk."""
    num_bytes = 0
    for nodes in graph.nodes.values():
        num_bytes += 8 * (nodes.count + 1)
        if nodes.features is not None:
            num_bytes += nodes.count * row_bytes(_feature_dtype(nodes, options), nodes.features.shape[1])
        if nodes.labels is not None:
            num_bytes += nodes.count * (4 * count_tasks(nodes.labels) or 8)
    for edges in graph.edges.values():
        index_bytes = np.dtype(index_dtype(graph.nodes[edges.source].count)).itemsize
        value_bytes = 4 * (edges.weights is not None) + 8 * (edges.times is not None)
        num_bytes += edges.edges.num_edges * (index_bytes + value_bytes) * (2 if options.undirected else 1)
    if graph.triples is not None:
        num_bytes += sum(24 * triples.shape[0] for triples in graph.triples.parts.values())
    return num_bytes


def _tidying(options: ImportOptions, graph: SourceGraph) -> Tidying | None:
    """What is counted and left out; None: nothing, which takes no look at the edges."""
    tidying = Tidying(
        both_ways=bool(options.undirected),
        drop_loops=options.self_loops == "drop",
        drop_duplicates=options.duplicates == "drop",
    )
    return tidying if graph.counts_repeats or tidying.leaves_out else None


def _with_random_features(graph: SourceGraph, dim: int, origin: str) -> SourceGraph:
    nodes = {}
    for node_type, each in graph.nodes.items():
        if each.features is not None:
            raise ConfigError(
                f"{origin}: --random-features {dim} is for graphs that have none, nodes '{node_type}' have "
                f"{each.features.shape[1]}; leave it out"
            )
        nodes[node_type] = replace(each, features=RandomFeatures(each.count, dim))
    return replace(graph, nodes=nodes)


def _check_options(graph: SourceGraph, options: ImportOptions, origin: str) -> None:
    of_edges = [
        as_option(name) for name in ("undirected", "self_loops", "duplicates", "order") if name in options.given()
    ]
    if of_edges and not graph.edges:
        raise ConfigError(f"{origin}: has triples and no edges, which {of_edges[0]} is for; leave it out")
    between_types = [name for name, edges in graph.edges.items() if edges.source != edges.destination]
    for name in of_edges:
        if between_types and name in ("--undirected", "--self-loops"):
            raise ConfigError(
                f"{origin}: {name} is for edges within one type of nodes, edges '{between_types[0]}' go from one type "
                "to another; leave it out"
            )
    if options.order == "hot" and (len(graph.nodes) > 1 or len(graph.edges) > 1):
        raise ConfigError(
            f"{origin}: --order hot is for graphs with one type of nodes and edges, this one has {len(graph.nodes)} "
            f"and {len(graph.edges)}; leave it out"
        )
    if options.dtype is not None and all(nodes.features is None for nodes in graph.nodes.values()):
        raise ConfigError(f"{origin}: has no features, which --dtype is for; leave it out")


def _most_held(graph: SourceGraph, options: ImportOptions) -> dict[str, int]:
    """What is reserved from here on when it is most, by name, but for sorting: known before any of it."""
    phases = [{"names": names.held_bytes} for names in graph.names.values()]
    for nodes in graph.nodes.values():
        called = {} if nodes.called is None else {"names": nodes.called.held_bytes}
        if options.order == "hot":
            num_edges = sum(edges.edges.num_edges for edges in graph.edges.values()) * (2 if options.undirected else 1)
            phases.append({"hot order": hot_order_bytes(nodes.count, num_edges, 1)})
            order_bytes = nodes.count * np.dtype(index_dtype(nodes.count)).itemsize
            selecting = 0 if nodes.called is None else nodes.called.selecting_bytes
            called |= {"hot order": order_bytes, "original ids": order_bytes + selecting}
        phases.append(called)
        if nodes.splits:
            phases.append({RESERVED_FOR_SPLIT: split_bytes(nodes.count)})
    return max(phases, key=lambda wanted: sum(wanted.values()))


def _find_order(
    edges: EdgeSource, graph: SourceGraph, tidying: Tidying | None, shop: WorkTools, origin: str
) -> HotOrder:
    (nodes,) = graph.nodes.values()
    return find_hot_order(
        edges,
        nodes.count,
        budget=shop.budget,
        threads=shop.threads,
        origin=origin,
        tidying=tidying,
        progress=shop.progress,
    )


def _share_order(order: HotOrder, held: ExitStack, shop: WorkTools) -> bool:
    """Whether workers renumber edges too: where there is room to spare for what they map, reserved until `held`."""
    num_bytes = order.new_ids.nbytes
    if shop.tools.processes == 1 or num_bytes > shop.budget.available_bytes // _SHARED_ORDER:
        return False
    held.enter_context(shop.budget.reserve("hot order", num_bytes))
    return True


def _held_values(name: str, column: Column | None, dtype: Any, held: ExitStack, shop: WorkTools) -> NDArray[Any] | None:
    """Values of edges, which are asked for in the order of the lists: in memory, reserved until `held` closes."""
    if column is None:
        return None
    values = np.empty(column.shape[0], dtype)
    held.enter_context(shop.budget.reserve(name, values.nbytes))
    filled = 0
    for block in tracked(column.blocks(), shop.progress, name, len(values)):
        with np.errstate(over="ignore"):  # a weight that becomes infinite is refused by its number
            values[filled : filled + len(block)] = block.reshape(-1)
        filled += len(block)
    return values


class _Moved:
    """Nodes that were renumbered. What it holds is reserved until `held` closes."""

    def __init__(self, order: HotOrder, identity: str, held: ExitStack, shop: WorkTools) -> None:
        held.enter_context(shop.budget.reserve("original ids", order.new_ids.nbytes))
        self.identity = identity
        self.new_ids = order.new_ids
        self.original_ids = order.original_ids()
        self.rows = RowMover(
            self.new_ids,
            self.original_ids,
            work=shop.work,
            budget=shop.budget,
            tools=shop.tools,
            progress=shop.progress,
        )


class _NodeWriter:
    """What the nodes of one type have, in their old order or the one they were moved to."""

    def __init__(
        self,
        node_type: str,
        nodes: SourceNodes,
        builder: DatasetBuilder,
        options: ImportOptions,
        moved: _Moved | None,
        shop: WorkTools,
    ) -> None:
        self._type = node_type
        self._nodes = nodes
        self._builder = builder
        self._options = options
        self._moved = moved
        self._shop = shop

    def write_features(self) -> None:
        """Values, encoded."""
        features = self._nodes.features
        if features is None:
            return
        dtype, dim = _feature_dtype(self._nodes, self._options), features.shape[1]

        if self._moved is None:
            with self._builder.naming(features.where):
                self._builder.add_feature_column(self._type, features, dtype=dtype)
            return

        def blocks() -> Iterator[NDArray[Any]]:
            return tracked(features.blocks(), self._shop.progress, FEATURES, self._nodes.count)

        num_bytes = row_bytes(dtype, dim)
        key = f"{features.identity}\n{dtype}\n{self._moved.identity}"
        rows = self._moved.rows.move(
            lambda: encoded_rows(blocks(), dtype, num_bytes, features.where), num_bytes, stage=FEATURES, key=key
        )
        self._builder.add_encoded_features(self._type, rows, dim=dim, dtype=dtype)

    def write_labels(self) -> None:
        """Classes, or tasks."""
        labels = self._nodes.labels
        if labels is None:
            return
        num_tasks = count_tasks(labels)

        def given() -> Iterator[NDArray[Any]]:
            blocks = tracked(labels.blocks(), self._shop.progress, "labels", self._nodes.count)
            # Booleans as numbers: they are compared with -1.
            numbers = (block.view(np.uint8) if block.dtype == np.bool_ else block for block in blocks)
            return numbers if num_tasks else (block.reshape(-1) for block in numbers)

        def checked() -> Iterator[NDArray[Any]]:
            if num_tasks:
                return checked_tasks(given(), labels.where)
            return checked_labels(given(), self._nodes.num_classes, set(), labels.where)

        # The builder checks them too, but cannot name the source's node once they have moved.
        blocks = given() if self._moved is None else self._moved_labels(labels, checked, num_tasks)
        with self._builder.naming(labels.where):
            if num_tasks:
                self._builder.add_tasks(self._type, blocks, num_tasks)
            else:
                self._builder.add_labels(self._type, blocks, self._nodes.num_classes)

    def write_splits(self) -> None:
        """Ids, in the order given."""
        new_ids = None if self._moved is None else self._moved.new_ids
        for part, splits in self._nodes.splits.items():
            for number, ids in enumerate(splits):
                with self._builder.naming(ids.where):
                    self._builder.add_split(self._type, part, ids.blocks(), number, len(splits), new_ids=new_ids)

    def write_called(self) -> None:
        """What nodes were called, where they were mapped or moved."""
        if self._nodes.called is None and self._moved is None:
            return
        with ExitStack() as held:
            called = None if self._nodes.called is None else held.enter_context(self._nodes.called)
            order = "original" if self._moved is None else "hot"
            blocks = tracked(self._called_blocks(called), self._shop.progress, "original ids", self._nodes.count)
            self._builder.add_original_ids(self._type, blocks, order=order)

    def _called_blocks(self, called: OriginalNames | None) -> Iterator[NDArray[Any]]:
        for start, stop in row_ranges(self._nodes.count, _NODES_PER_BLOCK):
            if self._moved is None:
                assert called is not None
                yield called.range(start, stop)
            else:
                numbers = self._moved.original_ids[start:stop]
                yield numbers if called is None else called.select(numbers)

    def _moved_labels(
        self, labels: Column, checked: Callable[[], Iterator[NDArray[Any]]], num_tasks: int
    ) -> Iterator[NDArray[Any]]:
        assert self._moved is not None
        dtype, shape = (np.float32, (-1, num_tasks)) if num_tasks else (np.int64, (-1,))
        num_bytes = np.dtype(dtype).itemsize * (num_tasks or 1)
        rows = self._moved.rows.move(
            lambda: (block.view(np.uint8).reshape(-1, num_bytes) for block in checked()),
            num_bytes,
            stage="labels",
            key=f"{labels.identity}\n{self._moved.identity}",
        )
        return (np.ascontiguousarray(block).view(dtype).reshape(shape) for block in rows)


def _write_triples(graph: SourceGraph, builder: DatasetBuilder, moved: _Moved | None, shop: WorkTools) -> None:
    if graph.triples is None:
        return
    node_type = next(iter(graph.nodes))
    for part, triples in graph.triples.parts.items():
        blocks = tracked(triples.blocks(), shop.progress, f"triples {part}", triples.shape[0])
        new_ids = None if moved is None else moved.new_ids
        with builder.naming(triples.where):
            builder.add_triples(node_type, part, blocks, graph.triples.num_relations, new_ids=new_ids)


def _tracked_lines(names: NameList, progress: Progress, stage: str) -> Iterator[NDArray[np.uint8]]:
    done = 0
    for block in names.lines():
        yield block
        done += int(np.count_nonzero(block == ord("\n")))
        progress(stage, done, names.count)


def _feature_dtype(nodes: SourceNodes, options: ImportOptions) -> str:
    assert nodes.features is not None
    is_half = nodes.features.dtype.kind == "f" and nodes.features.dtype.itemsize == 2
    return options.dtype or nodes.feature_dtype or ("float16" if is_half else "float32")


def _facts(graph: SourceGraph, options: ImportOptions, counts: dict[str, EdgeCounts]) -> dict[str, Any]:
    if not graph.counts_repeats:
        return dict(graph.facts)
    return {
        **graph.facts,
        "undirected": bool(options.undirected),
        # Equal ids of two types are two nodes.
        "self_loops": sum(
            each.loops for name, each in counts.items() if graph.edges[name].source == graph.edges[name].destination
        ),
        "duplicates": sum(each.duplicates for each in counts.values()),
        "dropped": [each for each in ("self_loops", "duplicates") if getattr(options, each) == "drop"],
    }
