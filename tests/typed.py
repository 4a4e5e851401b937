"""Graphs with several types of nodes and edges, for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edges import ArrayEdges
from diskhop.dataset.type_map import EdgeEnds, MergedEdges, TypeMap
from tests.graphs import threads_engine

COUNTS = {"author": 40, "paper": 60, "venue": 5}
ENDS: tuple[EdgeEnds, ...] = (
    ("author", "writes", "paper"),
    ("paper", "cites", "paper"),
    ("venue", "publishes", "paper"),
    ("paper", "written_by", "author"),
)


def pairs_of(ends: EdgeEnds, num_edges: int, seed: int) -> NDArray[np.int64]:
    """Random edges of one type (2, edges)."""
    generator = np.random.default_rng(seed)
    sources = generator.integers(0, COUNTS[ends[0]], num_edges)
    # Some lists are long, many are short or empty.
    destinations = (generator.random(num_edges) ** 2 * COUNTS[ends[2]]).astype(np.int64)
    return np.stack([sources, destinations])


def make_typed(destination: Path, edges_per_type: int = 300) -> Dataset:
    """Papers, authors and venues; the same for the same arguments.

    Citations have weights, and edges of authors times; papers have the year.
    """
    with DatasetBuilder(
        destination, name="typed", engine=threads_engine(), budget=Budget(1 << 30), threads=1
    ) as builder:
        for name, count in COUNTS.items():
            builder.add_nodes(name, count)
        for number, ends in enumerate(ENDS):
            edges = ArrayEdges(pairs_of(ends, edges_per_type, number))
            weights = np.arange(edges_per_type) % 5 / 4 if ends[1] == "cites" else None
            times = np.arange(edges_per_type) % 50 if ends[0] == "author" else None
            builder.add_edge_list("__".join(ends), ends[0], ends[2], edges, weights=weights, times=times)
        years = np.arange(COUNTS["paper"], dtype=np.int32) * 7 % 30
        builder.add_attribute("nodes", "paper", "year", AttributeInfo(dtype="int32"), [years])
        return builder.finish()


@st.composite
def typed_lists(draw: st.DrawFn) -> tuple[TypeMap, NDArray[np.int64], NDArray[np.int64]]:
    """A random schema, and its merged lists: indptr and indices. Types may have no nodes, edges or lists."""
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    counts = {name: draw(st.integers(0, 8)) for name in names}
    ends = st.tuples(st.sampled_from(names), st.sampled_from(["r", "s"]), st.sampled_from(names))
    schema = draw(st.lists(ends, min_size=1, max_size=6, unique=True))
    starts = dict(zip(names, np.cumsum([0, *counts.values()]), strict=False))
    edges, lengths, indices = [], [0], list[int]()
    for each in schema:
        before = len(indices)
        for _ in range(counts[each[2]]):
            sources = st.integers(0, counts[each[0]] - 1) if counts[each[0]] else st.nothing()
            neighbors = draw(st.lists(sources, max_size=8)) if counts[each[0]] else []
            indices += [int(starts[each[0]]) + node for node in neighbors]
            lengths.append(len(neighbors))
        edges.append(MergedEdges("__".join(each), each, len(indices) - before))
    return TypeMap(counts, tuple(edges)), np.cumsum(lengths, dtype=np.int64), np.array(indices, np.int64)
