"""Sampling by budget once more, in plain Python: slow, and written from budget.hpp's text alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from diskhop.protocols import SampledBatch
from diskhop.sampling.neighbor_ways import NeighborWays
from tests.unit.sampling_oracle import absorb
from tests.unit.ways_oracle import Graph, absorb_more, as_batch, fraction


def sample(
    graph: Graph, seeds: Sequence[int], counts: Sequence[Sequence[int]], key: tuple[int, int, int, int]
) -> SampledBatch:
    """counts: per hop, of each node type. key: seed, purpose, epoch, batch number."""
    nodes = list(seeds)
    budgets: dict[int, float] = {}  # in the order in which nodes were reached
    nodes_by_hop, first = [len(nodes)], 0
    for hop, of_types in enumerate(counts):
        for node in nodes[first:]:
            for number, _ in graph.lists_of(node):
                neighbors = neighbors_of(graph, number)
                for _, neighbor in neighbors:
                    if neighbor not in nodes:
                        budgets[neighbor] = budgets.get(neighbor, 0.0) + 1 / len(neighbors)
        first = len(nodes)
        hop_key = absorb(*key, hop, 0)
        for node_type, count in enumerate(of_types):
            candidates = [node for node in budgets if type_of(graph, node) == node_type]
            if 0 <= count < len(candidates):
                candidates = sorted(candidates, key=lambda node: (draw_key(hop_key, node, budgets[node]), node))[:count]
            for node in candidates:
                del budgets[node]
                nodes.append(node)
        nodes_by_hop.append(len(nodes) - first)
    local = {node: place for place, node in enumerate(nodes)}
    edges = []
    for node in nodes:
        own = [pair for number, _ in graph.lists_of(node) for pair in neighbors_of(graph, number)]
        edges.append([(local[neighbor], position) for position, neighbor in own if neighbor in local])
    ways = NeighborWays(subgraph="induced")
    return as_batch([(0, node) for node in nodes], [*nodes_by_hop, 0], edges, len(seeds), key[3], ways)


def neighbors_of(graph: Graph, number: int) -> list[tuple[int, int]]:
    """Position and neighbour of each edge of a list."""
    return [(place, int(graph.indices[place])) for place in range(graph.indptr[number], graph.indptr[number + 1])]


def draw_key(hop_key: int, node: int, budget: float) -> float:
    return -math.log(fraction(absorb_more(hop_key, node), 0)) / (budget * budget)


def type_of(graph: Graph, node: int) -> int:
    if graph.types is None:
        return 0
    starts = graph.types.node_starts.tolist()
    return next(number for number, end in enumerate(starts[1:]) if starts[number] <= node < end)
