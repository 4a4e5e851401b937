"""Writes a source's graph as a dataset: edges sorted into lists, then nodes, triples and names, within the budget."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.build.checks import RESERVED_FOR_SPLIT, split_bytes
from diskhop.dataset.build.feature_ranges import STAGE
from diskhop.dataset.edges import EdgeSource, UndirectedEdges, highest_ids
from diskhop.dataset.encoding import row_bytes
from diskhop.dataset.manifest import MOST_COUNT, edge_id_dtype, index_dtype
from diskhop.dataset.sort.hot_order import HotOrder, RenumberedEdges, find_hot_order, hot_order_bytes
from diskhop.dataset.sort.keys import RENUMBERING
from diskhop.dataset.sort.tidy import EdgeCounts, Tidying
from diskhop.errors import ConfigError, SourceError
from diskhop.importing.columns import count_tasks, stored_dtype
from diskhop.importing.edge_attributes import EdgeAttributeWriter
from diskhop.importing.options import ImportOptions, as_option
from diskhop.importing.random_columns import DEFAULT_TRAIN_FRACTION, RandomFeatures, RandomLabels, RandomSplit
from diskhop.importing.source import BY_EDGES, Column, NameList, SourceEdges, SourceGraph
from diskhop.importing.tools import ImportLimits, ImportTools
from diskhop.importing.write_nodes import MovedNodes, NodeWriter
from diskhop.runtime.progress import Progress, tracked

_EDGE_OPTIONS = ("undirected", "self_loops", "duplicates", "order", "edge_ids")


def write_graph(
    graph: SourceGraph, builder: DatasetBuilder, options: ImportOptions, work: ImportTools, origin: str
) -> dict[str, Any]:
    """Write the graph with the builder, and return facts for people, such as counts of duplicates.

    origin: the source's name in errors. Raises SourceError for a source that breaks a rule, ConfigError for an option
    that does not apply to the graph, BudgetError.
    """
    if graph.is_mirrored and options.undirected is None:
        options = replace(options, undirected=True)
    graph = _counted(graph, builder, options, work, origin)
    if options.random_features is not None:
        graph = _with_random_features(graph, options.random_features, options.seed or 0, origin)
    if options.random_labels is not None:
        graph = _with_random_labels(graph, options.random_labels, options, origin)
    _check_options(graph, options, origin)
    for node_type, nodes in graph.nodes.items():
        builder.add_nodes(node_type, nodes.count, states_count=nodes.states_count)
    work.budget.require(_most_reserved(graph, options))
    # Finished ranges of features count as disk space; rows in hot order are not written in ranges.
    kept_bytes = 0 if options.order == "hot" else work.folder.kept_bytes(f"{STAGE}*")
    builder.require_space(result_bytes(graph, options, work.limits) - kept_bytes)
    tidying = _tidying(options, graph)
    counts = {}
    with ExitStack() as held:
        order = None
        for edge_type, given in graph.edges.items():
            edges = _edges_of(given, options)
            if options.order == "hot":
                order = held.enter_context(_find_order(edges, graph, tidying, work, origin))
            with ExitStack() as reserved:
                if order is not None:
                    is_shared = _share_order(order, reserved, work)
                    edges = RenumberedEdges(edges, order.new_ids, origin, is_shared=is_shared)
                id_dtype, edge_ids = _edge_ids(given, options, reserved, work)
                attributes = EdgeAttributeWriter(edge_type, given, builder, work)
                counts[edge_type] = builder.add_edge_list(
                    edge_type,
                    given.source,
                    given.destination,
                    edges,
                    edge_id_dtype=id_dtype,
                    edge_ids=edge_ids,
                    weights=_edge_values("edge weights", given.weights, np.float32, reserved, work),
                    times=_edge_values("edge times", given.times, np.int64, reserved, work),
                    tidying=tidying,
                    numbers=attributes.numbers,
                    origin=given.origin,
                    adj_t=given.adj_t,
                )
            attributes.write()
        # Only now: sorting the edges uses all that is left of the budget.
        moved = None if order is None else MovedNodes(order, edges.identity, held, work)
        for node_type, nodes in graph.nodes.items():
            writer = NodeWriter(node_type, nodes, builder, options, moved, work)
            writer.write_features()
            writer.write_labels()
            writer.write_splits()
            writer.write_attributes()
            writer.write_original_ids()
        _write_triples(graph, builder, moved, work)
    for what, names in graph.names.items():
        builder.add_names(what, _tracked_lines(names, work.progress, f"names of {what}"), names.count)
    return _edge_id_facts(graph, options, work.limits) | _facts(graph, options, counts)


def _counted(
    graph: SourceGraph, builder: DatasetBuilder, options: ImportOptions, work: ImportTools, origin: str
) -> SourceGraph:
    """Fill in the node counts that the source leaves to the edges: the highest id + 1."""
    highest = {name: -1 for name, nodes in graph.nodes.items() if nodes.count == BY_EDGES}
    for edge_type, given in graph.edges.items():
        ends = (given.source, given.destination)
        if len(graph.nodes) == len(graph.edges) == len(highest) == 1 and options.order != "hot":
            is_numbered = _edge_id_dtype(given, options, work.limits) != "" or _has_columns(given)
            edges = _edges_of(given, options)
            highest[given.source] = builder.highest_id(edge_type, edges, is_numbered=is_numbered, origin=given.origin)
        elif highest.keys() & ends:
            found = highest_ids(given.edges, work.budget, work.threads, work.progress)
            for end, each in zip(ends, found, strict=True):
                if end in highest:
                    highest[end] = max(highest[end], each)
    for name, most in highest.items():
        if most >= MOST_COUNT:
            raise SourceError(
                f"{origin}: id {most} of nodes '{name}' is out of range: ids must be less than {MOST_COUNT}; "
                f"{RENUMBERING}"
            )
    nodes = {name: replace(graph.nodes[name], count=found + 1) for name, found in highest.items()}
    return replace(graph, nodes={**graph.nodes, **nodes})


def _edges_of(given: SourceEdges, options: ImportOptions) -> EdgeSource:
    return UndirectedEdges(given.edges) if options.undirected else given.edges


def _has_columns(given: SourceEdges) -> bool:
    attributes = (each.values for each in given.attributes.values())
    return any(each is not None for each in (given.weights, given.times, given.edge_ids, *attributes))


def _edge_id_dtype(given: SourceEdges, options: ImportOptions, limits: ImportLimits) -> str:
    """Return the dtype in which to store the numbers of edges, "" if they are not kept."""
    num_edges = given.edges.num_edges
    keeps = limits.keeps_edge_ids(options.edge_ids, num_edges, _has_columns(given) or given.has_more)
    return edge_id_dtype(num_edges) if keeps else ""


def _edge_ids(
    given: SourceEdges, options: ImportOptions, held: ExitStack, work: ImportTools
) -> tuple[str, NDArray[Any] | None]:
    """Return the dtype of the numbers to keep, "" for none, and the numbers if they are not those of the edges."""
    dtype = _edge_id_dtype(given, options, work.limits)
    edge_ids = _edge_values("edge ids", given.edge_ids if dtype else None, np.int64, held, work)
    return dtype if edge_ids is None else edge_id_dtype(1 + int(edge_ids.max(initial=0))), edge_ids


def result_bytes(graph: SourceGraph, options: ImportOptions, limits: ImportLimits) -> int:
    """Estimate the bytes of the dataset on disk."""
    num_bytes = 0
    for nodes in graph.nodes.values():
        num_bytes += 8 * (nodes.count + 1)
        if nodes.features is not None:
            num_bytes += nodes.count * row_bytes(stored_dtype(nodes, options), nodes.features.shape[1])
        if nodes.labels is not None:
            num_bytes += nodes.count * (4 * count_tasks(nodes.labels) or 8)
        num_bytes += nodes.count * sum(each.row_bytes for each in nodes.attributes.values())
    for edges in graph.edges.values():
        index_bytes = np.dtype(index_dtype(graph.nodes[edges.source].count)).itemsize
        value_bytes = 4 * (edges.weights is not None) + 8 * (edges.times is not None)
        value_bytes += sum(each.row_bytes for each in edges.attributes.values())
        value_bytes += np.dtype(_edge_id_dtype(edges, options, limits) or "V0").itemsize
        num_bytes += edges.edges.num_edges * (index_bytes + value_bytes) * (2 if options.undirected else 1)
    if graph.triples is not None:
        num_bytes += sum(24 * triples.shape[0] for triples in graph.triples.parts.values())
    return num_bytes


def _tidying(options: ImportOptions, graph: SourceGraph) -> Tidying | None:
    """Say which edges are counted and dropped; None: none, and the edges need no extra pass."""
    tidying = Tidying(
        both_ways=bool(options.undirected),
        drop_loops=options.self_loops == "drop",
        drop_duplicates=options.duplicates == "drop",
    )
    return tidying if graph.counts_repeats or tidying.leaves_out else None


def _with_random_features(graph: SourceGraph, dim: int, seed: int, origin: str) -> SourceGraph:
    nodes = {}
    for node_type, each in graph.nodes.items():
        if each.features is not None:
            raise ConfigError(
                f"{origin}: --random-features {dim} requires a graph without features, nodes '{node_type}' have "
                f"{each.features.shape[1]}; remove it"
            )
        nodes[node_type] = replace(each, features=RandomFeatures(each.count, dim, seed))
    return replace(graph, nodes=nodes)


def _with_random_labels(graph: SourceGraph, num_classes: int, options: ImportOptions, origin: str) -> SourceGraph:
    if len(graph.nodes) > 1:
        raise ConfigError(
            f"{origin}: --random-labels {num_classes} requires one node type, this graph has {len(graph.nodes)}; "
            "remove it"
        )
    ((node_type, nodes),) = graph.nodes.items()
    if nodes.labels is not None:
        raise ConfigError(
            f"{origin}: --random-labels {num_classes} requires a graph without labels, this one has labels; remove it"
        )
    if nodes.splits and options.train_fraction is not None:
        raise ConfigError(
            f"{origin}: --train-fraction requires a graph without a split, this one has {', '.join(nodes.splits)}; "
            "remove it"
        )
    seed, fraction = options.seed or 0, options.train_fraction or DEFAULT_TRAIN_FRACTION
    splits = nodes.splits or {"train": (RandomSplit(nodes.count, fraction, seed),)}
    labels = RandomLabels(nodes.count, num_classes, seed)
    nodes = replace(nodes, labels=labels, num_classes=num_classes, splits=splits)
    return replace(graph, nodes={node_type: nodes})


def _check_options(graph: SourceGraph, options: ImportOptions, origin: str) -> None:
    of_edges = [as_option(name) for name in _EDGE_OPTIONS if name in options.given()]
    if of_edges and not graph.edges:
        raise ConfigError(f"{origin}: {of_edges[0]} has no effect on triples, and there are no edges; remove it")
    between_types = [name for name, edges in graph.edges.items() if edges.source != edges.destination]
    for name in of_edges:
        if between_types and name in ("--undirected", "--self-loops"):
            raise ConfigError(
                f"{origin}: {name} requires edges within one node type, edges '{between_types[0]}' connect two types; "
                "remove it"
            )
    if options.order == "hot" and (len(graph.nodes) > 1 or len(graph.edges) > 1):
        raise ConfigError(
            f"{origin}: --order hot requires one node type and one edge type, this graph has {len(graph.nodes)} "
            f"and {len(graph.edges)}; remove it"
        )
    if options.dtype is not None and all(nodes.features is None for nodes in graph.nodes.values()):
        raise ConfigError(f"{origin}: --dtype has no effect without features; remove it, or add --random-features 64")


def _most_reserved(graph: SourceGraph, options: ImportOptions) -> dict[str, int]:
    """Predict the largest reservations that follow, by name, without those of sorting."""
    phases = [{"names": names.reserved_bytes} for names in graph.names.values()]
    for nodes in graph.nodes.values():
        original = {} if nodes.original is None else {"names": nodes.original.reserved_bytes}
        if options.order == "hot":
            num_edges = sum(edges.edges.num_edges for edges in graph.edges.values()) * (2 if options.undirected else 1)
            phases.append({"hot order": hot_order_bytes(nodes.count, num_edges, 1)})
            order_bytes = nodes.count * np.dtype(index_dtype(nodes.count)).itemsize
            selecting = 0 if nodes.original is None else nodes.original.selecting_bytes
            original |= {"hot order": order_bytes, "original ids": order_bytes + selecting}
        phases.append(original)
        if nodes.splits:
            phases.append({RESERVED_FOR_SPLIT: split_bytes(nodes.count)})
    return max(phases, key=lambda wanted: sum(wanted.values()))


def _find_order(
    edges: EdgeSource, graph: SourceGraph, tidying: Tidying | None, work: ImportTools, origin: str
) -> HotOrder:
    (nodes,) = graph.nodes.values()
    return find_hot_order(
        edges,
        nodes.count,
        budget=work.budget,
        threads=work.threads,
        origin=origin,
        tidying=tidying,
        progress=work.progress,
    )


def _share_order(order: HotOrder, held: ExitStack, work: ImportTools) -> bool:
    """Decide whether workers renumber edges too; their copy of the order is then reserved until `held` closes."""
    num_bytes = order.new_ids.nbytes
    if work.tools.processes == 1 or num_bytes > work.budget.available_bytes // work.limits.order_share:
        return False
    held.enter_context(work.budget.reserve("hot order", num_bytes))
    return True


def _edge_values(
    name: str, column: Column | None, dtype: Any, held: ExitStack, work: ImportTools
) -> NDArray[Any] | None:
    """Load values of edges, which lists use in random order, into memory that is reserved until `held` closes."""
    if column is None:
        return None
    values = np.empty(column.shape[0], dtype)
    held.enter_context(work.budget.reserve(name, values.nbytes))
    filled = 0
    for block in tracked(column.blocks(), work.progress, name, len(values)):
        with np.errstate(over="ignore"):  # the builder refuses an infinite weight, and names its edge
            values[filled : filled + len(block)] = block.reshape(-1)
        filled += len(block)
    return values


def _write_triples(graph: SourceGraph, builder: DatasetBuilder, moved: MovedNodes | None, work: ImportTools) -> None:
    if graph.triples is None:
        return
    node_type = next(iter(graph.nodes))
    for part, triples in graph.triples.parts.items():
        blocks = tracked(triples.blocks(), work.progress, f"triples {part}", triples.shape[0])
        new_ids = None if moved is None else moved.new_ids
        with builder.naming(triples.where):
            builder.add_triples(node_type, part, blocks, graph.triples.num_relations, new_ids=new_ids)


def _tracked_lines(names: NameList, progress: Progress, stage: str) -> Iterator[NDArray[np.uint8]]:
    done = 0
    for block in names.lines():
        yield block
        done += int(np.count_nonzero(block == ord("\n")))
        progress(stage, done, names.count)


def _edge_id_facts(graph: SourceGraph, options: ImportOptions, limits: ImportLimits) -> dict[str, Any]:
    """Say whether the numbers of edges are kept, and what they cost or would cost."""
    if not graph.edges:
        return {}
    kept = [_edge_id_dtype(each, options, limits) for each in graph.edges.values()]
    ways = 2 if options.undirected else 1
    counts = [each.edges.num_edges for each in graph.edges.values()]
    id_bytes = [np.dtype(edge_id_dtype(count)).itemsize for count in counts]
    all_bytes = [ways * count * each for count, each in zip(counts, id_bytes, strict=True)]
    return {
        "edge_ids": {
            "kept": all(kept),
            "bytes": sum(each for each, dtype in zip(all_bytes, kept, strict=True) if dtype),
            "bytes_if_kept": sum(all_bytes),
            "bytes_per_edge": max(id_bytes),
        }
    }


def _facts(graph: SourceGraph, options: ImportOptions, counts: dict[str, EdgeCounts]) -> dict[str, Any]:
    if not graph.counts_repeats:
        return dict(graph.facts)
    return {
        **graph.facts,
        "undirected": bool(options.undirected),
        # Between two types, equal ids are different nodes.
        "self_loops": sum(
            each.loops for name, each in counts.items() if graph.edges[name].source == graph.edges[name].destination
        ),
        "duplicates": sum(each.duplicates for each in counts.values()),
        "dropped": [each for each in ("self_loops", "duplicates") if getattr(options, each) == "drop"],
    }
