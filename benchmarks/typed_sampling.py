"""Sampled edges per second of a graph with three types of nodes, beside those of a graph with one type.

Claim (issue 40): at least 40 M edges/s on one core over three types. The graph has MAG240M's proportions at 1/60:
papers, authors and institutions, three edge types and their opposites, 4 M nodes and 57 M edges. Rates are per second
of the thread's own time, since the machine may be shared, and both sides take turns batch by batch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool
from diskhop.dataset.type_map import MergedEdges, TypeMap
from diskhop.protocols import Purpose, Sampler, SamplerSpec, neighbor_spec
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.topology import Topology
from diskhop.sampling.type_fanouts import with_fanouts

COUNTS = {"paper": 2_029_000, "author": 2_039_000, "institution": 430}
EDGES = (
    ("paper", "cites", "paper", 21_600_000),
    ("author", "writes", "paper", 6_400_000),
    ("paper", "rev_writes", "author", 6_400_000),
    ("author", "affiliated_with", "institution", 740_000),
    ("institution", "rev_affiliated_with", "author", 740_000),
    ("paper", "rev_cites", "paper", 21_600_000),
)
# Those of OGB's R-GNN for MAG240M.
FANOUTS, BATCH_SIZE, POOL_BYTES = (25, 15), 1000, 256 << 20
BY_TYPE = {("paper", "cites", "paper"): (15, 10), ("institution", "rev_affiliated_with", "author"): (2, 2)}
WANTED_RATE = 40e6


def skewed_lists(num_lists: int, num_sources: int, num_edges: int, seed: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return lengths of lists, and sources of their edges; some nodes have many more edges than others."""
    generator = np.random.default_rng(seed)
    weights = generator.pareto(2.0, num_lists) + 0.2
    lengths = (weights * (num_edges / weights.sum())).astype(np.int64)
    scattered = generator.permutation(num_sources).astype(np.uint32)
    sources = scattered[(generator.random(int(lengths.sum())) ** 3 * num_sources).astype(np.int64)]
    return lengths, sources


def in_huge_pages(values: NDArray[Any]) -> NDArray[Any]:
    """Return a copy in memory as open_topology() has it."""
    memory = BufferPool(0).take(values.nbytes).view(values.dtype)
    memory[:] = values
    return memory


def make_typed() -> Topology:
    """A graph with three node types, in memory."""
    starts = dict(zip(COUNTS, np.cumsum([0, *COUNTS.values()]).tolist(), strict=False))
    edges, lengths, indices = [], [], []
    for number, (source, relation, destination, num_edges) in enumerate(EDGES):
        own, sources = skewed_lists(COUNTS[destination], COUNTS[source], num_edges, number)
        lengths.append(own)
        indices.append(sources + np.uint32(starts[source]))
        edges.append(MergedEdges(relation, (source, relation, destination), len(sources)))
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths))])
    types = TypeMap(COUNTS, tuple(edges))
    return Topology(Path("typed"), in_huge_pages(indptr), in_huge_pages(np.concatenate(indices)), types=types)


def make_untyped(typed: Topology) -> Topology:
    """A graph of one type with as many nodes and edges."""
    lengths, sources = skewed_lists(typed.num_nodes, typed.num_nodes, typed.num_edges, 9)
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return Topology(Path("untyped"), in_huge_pages(indptr), in_huge_pages(sources))


def core_seconds(sampler: Sampler, seeds: NDArray[np.int64], number: int) -> tuple[float, int]:
    """Return the thread's seconds for one batch, and its edges."""
    started = time.thread_time()
    batch = sampler.sample(seeds, purpose=Purpose.TRAIN, epoch=0, number=number)
    return time.thread_time() - started, len(batch.sources)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    arguments = parser.parse_args()
    typed = make_typed()
    untyped = make_untyped(typed)
    specs: dict[str, tuple[Topology, SamplerSpec]] = {
        "one type": (untyped, neighbor_spec(FANOUTS)),
        "three types": (typed, neighbor_spec(FANOUTS)),
        "three types, fan-outs by type": (typed, with_fanouts(neighbor_spec(FANOUTS), BY_TYPE)),
    }
    # As in the pipeline: batches reuse the memory of earlier batches.
    samplers = {name: open_sampler(graph, spec, 0, BufferPool(POOL_BYTES)) for name, (graph, spec) in specs.items()}
    generator = np.random.default_rng(1)
    measured: dict[str, list[tuple[float, int]]] = {name: [] for name in samplers}
    for number in range(-5, arguments.batches):
        seeds = generator.choice(COUNTS["paper"], BATCH_SIZE, replace=False).astype(np.int64)
        for name, sampler in samplers.items():
            turn = core_seconds(sampler, seeds, abs(number))
            if number >= 0:
                measured[name].append(turn)
    rates = {name: sum(edges for _, edges in turns) / sum(s for s, _ in turns) for name, turns in measured.items()}
    out = sys.stderr if arguments.json else sys.stdout
    print(f"{typed.num_nodes:,} nodes, {typed.num_edges:,} edges; batch {BATCH_SIZE}, {os.cpu_count()} cores", file=out)
    for name, turns in measured.items():
        by_batch = [edges / seconds / 1e6 for seconds, edges in turns]
        spread = f"{statistics.median(by_batch):.1f} ({min(by_batch):.1f}..{max(by_batch):.1f}) by batch"
        edges = sum(edges for _, edges in turns) / len(turns)
        print(f"{name:32}{rates[name] / 1e6:8.1f} M edges/s of one core; {spread}; {edges:,.0f} edges", file=out)
    met = min(rate for name, rate in rates.items() if name != "one type") >= WANTED_RATE
    print(f"wanted over three types: {WANTED_RATE / 1e6:.0f} M edges/s: {'met' if met else 'MISSED'}", file=out)
    if arguments.json:
        print(json.dumps({"benchmark": "typed_sampling", "edges_per_second": rates, "met": met}, indent=1))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
