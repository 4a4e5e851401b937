"""LABOR, LADIES and FastGCN once more, in plain Python: slow, and written from importance.hpp's text alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.type_map import TypeMap
from diskhop.protocols import SampledBatch
from tests.unit.sampling_oracle import absorb, mix64
from tests.unit.ways_oracle import Graph

_GOLDEN64, _MASK64 = 0x9E3779B97F4A7C15, 2**64 - 1

# Node, position and weight of an edge that is kept.
Kept = tuple[int, int, float]
Draw = Callable[[int], float]
# A list's node, and the neighbour at each position.
Lists = list[tuple[int, list[tuple[int, int]]]]


def draw_of(key: tuple[int, int, int, int], hop: int, dependency: int) -> Draw:
    """Return the draws of one hop. key: seed, purpose, epoch, batch number."""

    def word(batch: int, node: int) -> int:
        folded = absorb(*key[:3], batch, hop, 0)
        return mix64(((folded ^ node) + _GOLDEN64) & _MASK64)

    def draw(node: int) -> float:
        turn = word(2**64 - 1, node) * dependency >> 64
        group = key[3] // dependency + (key[3] % dependency + turn >= dependency)
        return ((word(group, node) >> 12) + 0.5) / 2**52

    return draw


def find_scale(sizes: Sequence[float], wanted: int) -> float:
    """Return the scale that makes the sum of min(1, scale * size) `wanted`."""
    if wanted < 0 or len(sizes) <= wanted:
        return math.inf
    scale, num_raised = 0.0, 0
    while True:
        small = [size for size in sizes if scale * size < 1]
        raised = len(sizes) - len(small)
        if scale > 0 and (raised == num_raised or raised >= wanted):
            return scale
        total = 0.0
        for size in small:
            total += size
        num_raised, scale = raised, (wanted - raised) / total


def keep_labor(lists: Lists, fanouts: Sequence[int], draw: Draw, is_balanced: bool) -> list[list[Kept]]:
    """fanouts: of each list."""

    def share(edges: list[tuple[int, int]], fanout: int) -> float:
        return 1.0 if fanout < 0 or len(edges) <= fanout else fanout / len(edges)

    most: dict[int, float] = {}
    for (_, edges), fanout in zip(lists, fanouts, strict=True):
        for neighbor, _ in edges:
            most[neighbor] = max(most.get(neighbor, 0.0), share(edges, fanout))
    kept: list[list[Kept]] = []
    for (_, edges), fanout in zip(lists, fanouts, strict=True):
        if not is_balanced:
            kept.append([(node, place, 1.0) for node, place in edges if draw(node) < share(edges, fanout)])
            continue
        scale = find_scale([most[node] for node, _ in edges], fanout)
        chances = [(node, place, min(1.0, scale * most[node])) for node, place in edges]
        chosen = [(node, place, 1 / chance) for node, place, chance in chances if draw(node) < chance]
        total = 0.0
        for _, _, weight in chosen:
            total += weight
        kept.append([(node, place, weight * len(chosen) / total) for node, place, weight in chosen])
    return kept


def keep_ladies(lists: Lists, fanout: int, draw: Draw) -> list[list[Kept]]:
    sizes: dict[int, float] = {}
    for _, edges in lists:
        for neighbor, _ in edges:
            sizes[neighbor] = sizes.get(neighbor, 0.0) + (1 / len(edges)) * (1 / len(edges))
    chances = dict.fromkeys(sizes, 1.0)
    if 0 <= fanout < len(sizes):
        ranked = sorted((draw(node) / size, place, node) for place, (node, size) in enumerate(sizes.items()))
        limit = ranked[fanout][0]
        chances = {node: min(1.0, sizes[node] * limit) for _, _, node in ranked[:fanout]}
    return [[(node, place, 1 / chances[node]) for node, place in edges if node in chances] for _, edges in lists]


def keep_fastgcn(lists: Lists, fanout: int, draw: Draw, indptr: NDArray[np.int64]) -> list[list[Kept]]:
    degrees = np.diff(indptr)
    scale = find_scale([float(degree + 1) for degree in degrees], fanout)
    chances = [min(1.0, scale * float(degree + 1)) for degree in degrees]
    return [
        [(node, place, 1 / chances[node]) for node, place in edges if draw(node) < chances[node]] for _, edges in lists
    ]


def num_types(graph: Graph) -> int:
    return 1 if graph.types is None else len(graph.types.edges)


def sample(
    indptr: NDArray[np.int64],
    indices: NDArray[np.uint32] | NDArray[np.int64],
    seeds: Sequence[int],
    fanouts: Sequence[int | Sequence[int]],
    key: tuple[int, int, int, int],
    kind: str,
    types: TypeMap | None = None,
    /,
    *,
    importance: int = 0,
    batch_dependency: int = 1,
) -> SampledBatch:
    """fanouts: per hop, one or, with types, one of each edge type. key: seed, purpose, epoch, batch number."""
    graph = Graph(indptr, indices, types=types)
    node_ids = list(seeds)
    local_ids = {node: local for local, node in enumerate(node_ids)}
    offsets, sources, positions, weights = [0], list[int](), list[int](), list[float]()
    nodes_by_hop, edges_by_hop = [len(node_ids)], list[int]()
    first = 0
    for hop, fanout in enumerate(fanouts):
        frontier, first, first_edge = node_ids[first:], len(node_ids), len(sources)
        counts = [fanout] * max(1, num_types(graph)) if isinstance(fanout, int) else fanout
        found = [(node, each, counts[kind_of]) for node in frontier for each, kind_of in graph.lists_of(node)]
        found = [each for each in found if each[2] != 0]
        lists = [
            (node, [(int(indices[place]), place) for place in range(int(indptr[each]), int(indptr[each + 1]))])
            for node, each, _ in found
        ]
        draw = draw_of(key, hop, batch_dependency)
        if kind == "labor":
            kept = keep_labor(lists, [count for _, _, count in found], draw, importance == 1)
        elif kind == "ladies":
            kept = keep_ladies(lists, counts[0], draw)
        else:
            kept = keep_fastgcn(lists, counts[0], draw, indptr)
        for owner in frontier:
            of_node = [edge for (node, _), edges in zip(lists, kept, strict=True) if node == owner for edge in edges]
            for node, place, weight in of_node:
                if node not in local_ids:
                    local_ids[node] = len(node_ids)
                    node_ids.append(node)
                sources.append(local_ids[node])
                positions.append(place)
                weights.append(weight)
            offsets.append(len(sources))
        nodes_by_hop.append(len(node_ids) - first)
        edges_by_hop.append(len(sources) - first_edge)
    has_weights = kind != "labor" or importance == 1
    return SampledBatch(
        number=key[3],
        num_seeds=len(seeds),
        node_ids=np.array(node_ids, np.int64),
        indptr=np.array(offsets, np.int64),
        sources=np.array(sources, np.int32),
        edge_positions=np.array(positions, np.int64),
        num_sampled_nodes=tuple(nodes_by_hop),
        num_sampled_edges=tuple(edges_by_hop),
        edge_weights=np.array(weights, np.float32) if has_weights else None,
    )
