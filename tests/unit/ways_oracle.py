"""The definition of every way to draw neighbours once more, in plain Python: slow, and written from the texts alone."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.type_map import TypeMap
from diskhop.protocols import DistinctRows, SampledBatch
from diskhop.sampling.neighbor_ways import NeighborWays
from tests.unit.sampling_oracle import absorb, draw_below, draw_offsets, mix64

_GOLDEN64 = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Graph:
    """Lists, and numbers of edges and nodes; None without any. With types, a node has a list of each edge type."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.uint32] | NDArray[np.int64]
    weights: NDArray[np.float32] | None = None
    edge_times: NDArray[np.int64] | None = None
    node_times: NDArray[np.int64] | None = None
    types: TypeMap | None = None

    def lists_of(self, node: int) -> list[tuple[int, int]]:
        """Each list of a node, and the number of its edge type."""
        if self.types is None:
            return [(node, 0)]
        starts = self.types.node_starts.tolist()
        lists = []
        for number, destination in enumerate(self.types.destinations.tolist()):
            if starts[destination] <= node < starts[destination + 1]:
                lists.append((int(self.types.list_starts[number]) + node - starts[destination], number))
        return lists

    def time_of(self, position: int) -> int:
        if self.edge_times is not None:
            return int(self.edge_times[position])
        assert self.node_times is not None
        return int(self.node_times[self.indices[position]])


def fraction(node_key: int, counter: int) -> float:
    draw = mix64((node_key + (counter + 1) * _GOLDEN64) % 2**64)
    return ((draw >> 12) + 0.5) / 2**52


def draw_among(node_key: int, count: int, fanout: int, replace: bool) -> list[int]:
    if replace and fanout >= 0:
        wide = count >= 2**16
        return [draw_below(node_key, number, count, wide=wide) for number in range(fanout)] if count else []
    return draw_offsets(node_key, count, fanout)


def draw_by_weights(node_key: int, weights: list[float], fanout: int, replace: bool) -> list[int]:
    if replace and fanout >= 0:
        sums = list(np.cumsum(np.array(weights, np.float64)))
        if not sums or sums[-1] == 0:
            return []
        last = bisect.bisect_left(sums, sums[-1])
        return [min(bisect.bisect_right(sums, fraction(node_key, number) * sums[-1]), last) for number in range(fanout)]
    drawable = [place for place, weight in enumerate(weights) if weight > 0]
    if fanout < 0 or len(drawable) <= fanout:
        return drawable
    return sorted(drawable, key=lambda place: (-math.log(fraction(node_key, place)) / weights[place], place))[:fanout]


def draw_positions(graph: Graph, ways: NeighborWays, node: int, fanout: int, hop_key: int, latest: int) -> list[int]:
    node_key = absorb_more(hop_key, node)
    positions = list(range(int(graph.indptr[node]), int(graph.indptr[node + 1])))
    if ways.times:
        positions = [position for position in positions if graph.time_of(position) <= latest]
        if ways.strategy == "last":
            positions.sort(key=lambda position: (graph.time_of(position), position))
            positions = positions[-fanout:] if fanout > 0 else positions
    if ways.weights:
        assert graph.weights is not None
        weights = [float(graph.weights[position]) for position in positions]
        return [positions[place] for place in draw_by_weights(node_key, weights, fanout, ways.replace)]
    return [positions[place] for place in draw_among(node_key, len(positions), fanout, ways.replace)]


def absorb_more(key: int, part: int) -> int:
    return mix64(((key ^ part) + _GOLDEN64) % 2**64)


def sample(
    graph: Graph,
    ways: NeighborWays,
    seeds: Sequence[int],
    fanouts: Sequence[int | Sequence[int]],
    key: tuple[int, int, int, int],
    times: Sequence[int] | None = None,
) -> SampledBatch:
    """fanouts: per hop, one or one of each edge type. key: seed, purpose, epoch, batch number."""
    if ways.times and times is None:
        assert graph.node_times is not None
        times = [int(graph.node_times[seed]) for seed in seeds]
    nodes = [(place if ways.is_disjoint else 0, seed) for place, seed in enumerate(seeds)]
    local = {node: place for place, node in enumerate(nodes)}
    edges: list[list[tuple[int, int]]] = []  # per node: source and position
    nodes_by_hop = [len(nodes)]
    first = 0
    for hop, fanout in enumerate(fanouts):
        frontier, first = nodes[first:], len(nodes)
        hop_key = absorb(*key, hop, 0)
        for owner, node in frontier:
            latest = times[owner] if ways.times and times is not None else 0
            own_key = absorb_more(hop_key, owner) if ways.is_disjoint else hop_key
            drawn = []
            for number, edge_type in graph.lists_of(node):
                count = fanout if isinstance(fanout, int) else fanout[edge_type]
                if count == 0:
                    continue
                for position in draw_positions(graph, ways, number, count, own_key, latest):
                    neighbor = (owner, int(graph.indices[position]))
                    if neighbor not in local:
                        local[neighbor] = len(nodes)
                        nodes.append(neighbor)
                    drawn.append((local[neighbor], position))
            edges.append(drawn)
        nodes_by_hop.append(len(nodes) - first)
    if ways.subgraph == "bidirectional":
        edges = both_directions(edges, len(nodes))
    if ways.subgraph == "induced":
        num_types = 1 if graph.types is None else len(graph.types.edges)
        hops = [[fanout] * num_types if isinstance(fanout, int) else fanout for fanout in fanouts]
        is_drawn = [any(counts) for counts in zip(*hops, strict=True)]
        edges = induced(graph, ways, nodes, local, times, is_drawn)
    if not ways.by_hop:
        nodes_by_hop.append(0)
    return as_batch(nodes, nodes_by_hop, edges, len(seeds), key[3], ways)


def both_directions(edges: list[list[tuple[int, int]]], num_nodes: int) -> list[list[tuple[int, int]]]:
    lowest: list[dict[int, int]] = [{} for _ in range(num_nodes)]
    for target, drawn in enumerate(edges):
        for source, position in drawn:
            for end, other in ((target, source), (source, target)):
                lowest[end][other] = min(position, lowest[end].get(other, position))
    return [sorted(each.items()) for each in lowest]


def induced(
    graph: Graph,
    ways: NeighborWays,
    nodes: list[tuple[int, int]],
    local: dict[tuple[int, int], int],
    times: Sequence[int] | None,
    is_drawn: list[bool],
) -> list[list[tuple[int, int]]]:
    edges = []
    for owner, node in nodes:
        lists = [number for number, edge_type in graph.lists_of(node) if not is_drawn or is_drawn[edge_type]]
        positions = [place for each in lists for place in range(int(graph.indptr[each]), int(graph.indptr[each + 1]))]
        if ways.times and graph.edge_times is not None and times is not None:
            positions = [position for position in positions if graph.time_of(position) <= times[owner]]
        found = [(local.get((owner, int(graph.indices[position]))), position) for position in positions]
        edges.append([(source, position) for source, position in found if source is not None])
    return edges


def as_batch(
    nodes: list[tuple[int, int]],
    nodes_by_hop: list[int],
    edges: list[list[tuple[int, int]]],
    num_seeds: int,
    number: int,
    ways: NeighborWays,
) -> SampledBatch:
    node_ids = np.array([node for _, node in nodes], np.int64)
    indptr = np.cumsum([0, *map(len, edges)], dtype=np.int64)
    row_ids = list(dict.fromkeys(node_ids.tolist()))
    places = {node: place for place, node in enumerate(row_ids)}
    of_nodes = np.array([places[node] for node in node_ids.tolist()], np.int64)
    flat = [edge for drawn in edges for edge in drawn]
    hop_ends = np.cumsum([0, *nodes_by_hop[:-1]])
    return SampledBatch(
        number=number,
        num_seeds=num_seeds,
        node_ids=node_ids,
        indptr=indptr,
        sources=np.array([source for source, _ in flat], np.int32),
        edge_positions=np.array([position for _, position in flat], np.int64),
        num_sampled_nodes=tuple(nodes_by_hop),
        num_sampled_edges=tuple(np.diff(indptr[hop_ends]).tolist()),
        seed_of=np.array([owner for owner, _ in nodes], np.int64) if ways.is_disjoint else None,
        distinct=DistinctRows(np.array(row_ids, np.int64), of_nodes) if ways.is_disjoint else None,
        by_hop=ways.by_hop,
    )
