"""Cache policies on a recorded trace, without any disk: misses by Belady's rule and by static rows, and how fast.

Claims (issue 4): on workload W (kronecker, hot order, 4 M nodes, 60 M edges; batches of 1000, fan-out 10,10,10; a
cache of 10 % of the rows) a full epoch's misses by Belady's rule, its fills counted, are at most .85 times those of the
rows with the most out-edges; changesets take one core at most 1/40 microsecond per access. The paper's procedure
(Ginex, Figure 13) in NumPy runs next to it, on the last batches of the span.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from diskhop._native import NEVER_USED, BeladyCache, NextUses, keyed_permutation
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.generating import GraphConfig, generate_graph
from diskhop.io.engine import open_engine
from diskhop.policies.static import most_accessed
from diskhop.protocols import NodeIds, Purpose, neighbor_spec
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.topology import open_topology

FANOUT, BATCH_SIZE, CACHED_FRACTION = (10, 10, 10), 1000, 0.1
MOST_OF_STATIC, LEAST_RATE = 0.85, 40e6
_MEMORY_BYTES = 4_000_000_000


def static_rows_read(trace: list[NodeIds], pinned: NodeIds, num_rows: int) -> int:
    """Count the rows read by a cache of fixed rows: the cached rows once, then every miss."""
    is_pinned = np.zeros(num_rows, np.bool_)
    is_pinned[pinned] = True
    return len(pinned) + sum(int(np.count_nonzero(~is_pinned[ids])) for ids in trace)


def make_graph(folder: Path) -> Dataset:
    """Generate workload W without its features."""
    config = GraphConfig(
        kind="kronecker",
        num_nodes=4_000_000,
        num_edges=60_000_000,
        dim=0,
        num_classes=47,
        train_fraction=0.1,
        order="hot",
        seed=1,
    )
    engine = open_engine("auto").engine
    return generate_graph(folder / "w", config, engine=engine, budget=Budget(_MEMORY_BYTES), threads=2)


def record_trace(dataset: Dataset, num_batches: int) -> list[NodeIds]:
    train_ids = dataset.split_rows("train")
    assert train_ids is not None
    seeds = train_ids[keyed_permutation(len(train_ids), 0, int(Purpose.TRAIN), 0)]
    engine = open_engine("auto").engine
    with open_topology(dataset.topology, "memory", engine, Budget(_MEMORY_BYTES)) as topology:
        sampler = open_sampler(topology, neighbor_spec(FANOUT), 0)
        parts = [seeds[start : start + BATCH_SIZE] for start in range(0, len(seeds), BATCH_SIZE)][:num_batches]
        return [
            sampler.sample(part, purpose=Purpose.TRAIN, epoch=0, number=number).node_ids.copy()
            for number, part in enumerate(parts)
        ]


def run_belady(trace: list[NodeIds], num_rows: int, capacity: int) -> dict[str, Any]:
    """Measure the seconds of looking back and of stepping, and the rows read."""
    started = time.perf_counter()
    uses = NextUses(num_rows, len(trace))
    next_uses = [uses.look_back(ids) for ids in reversed(trace)]
    looked_back = time.perf_counter()
    cache = BeladyCache(num_rows, capacity)
    num_filled = len(cache.begin(uses, len(trace), True)[0])
    num_hits = sum(cache.step(ids, next_uses.pop())[2] for ids in trace)
    ended = time.perf_counter()
    return {
        "look_back_seconds": looked_back - started,
        "seconds": ended - started,
        "num_filled": num_filled,
        "rows_read": num_filled + sum(map(len, trace)) - num_hits,
    }


def run_numpy(trace: list[NodeIds], num_rows: int, capacity: int) -> float:
    """Measure accesses per second of Figure 13's main loop, next uses given: union, then the smallest next uses."""
    uses = NextUses(num_rows, len(trace))
    next_uses = [uses.look_back(ids) for ids in reversed(trace)]
    next_use_of = np.full(num_rows, NEVER_USED, np.uint32)
    cached = np.empty(0, np.int64)
    started = time.perf_counter()
    for ids in trace:
        next_use_of[ids] = next_uses.pop()
        candidates = np.union1d(cached, ids)
        order = np.argpartition(next_use_of[candidates], min(capacity, len(candidates) - 1))
        kept = candidates[order[:capacity]]
        np.setdiff1d(kept, cached, assume_unique=True)
        np.setdiff1d(cached, kept, assume_unique=True)
        cached = kept
    return sum(map(len, trace)) / (time.perf_counter() - started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=Path(), help="a folder on the disk to use")
    parser.add_argument("--dataset", type=Path, help="workload W; default: made now, without features")
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    arguments = parser.parse_args()

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="diskhop-bench-") as folder:
        dataset = open_dataset(arguments.dataset) if arguments.dataset else make_graph(Path(folder))
        trace = record_trace(dataset, arguments.batches)
        num_rows = dataset.num_nodes
    capacity = int(num_rows * CACHED_FRACTION)
    num_accesses = sum(map(len, trace))
    out(f"{len(trace)} batches, {num_accesses / 1e6:.1f} M accesses to {num_rows:,} rows, {capacity:,} cached")
    runs = [run_belady(trace, num_rows, capacity) for _ in range(arguments.repeats)]
    # In hot order the rows with the most out-edges come first.
    by_degree = static_rows_read(trace, np.arange(capacity), num_rows)
    counts = np.zeros(num_rows, np.int64)
    for ids in trace:
        counts[ids] += 1
    by_trace = static_rows_read(trace, most_accessed(counts, capacity), num_rows)
    rates = [num_accesses / run["seconds"] for run in runs]
    numpy_rate = run_numpy(trace[-10:], num_rows, capacity)
    for name, rows_read in (
        ("static, by out-degree", by_degree),
        ("static, offline-optimal", by_trace),
        ("belady", runs[0]["rows_read"]),
    ):
        share = rows_read / by_degree
        out(f"{name:26}{rows_read / len(trace):12,.0f} rows read per batch{share:8.3f} of static's")
    rate = statistics.median(rates)
    look_back = statistics.median(num_accesses / run["look_back_seconds"] for run in runs)
    out(
        f"changesets: {rate / 1e6:.1f} M accesses/s ({min(rates) / 1e6:.1f}..{max(rates) / 1e6:.1f}), looking back "
        f"alone {look_back / 1e6:.1f}; NumPy {numpy_rate / 1e6:.2f}: {rate / numpy_rate:.0f} times"
    )
    ratio = runs[0]["rows_read"] / by_degree
    met = {
        f"misses {ratio:.3f} of static's, at most {MOST_OF_STATIC}": ratio <= MOST_OF_STATIC,
        f"{rate / 1e6:.1f} M accesses/s, at least {LEAST_RATE / 1e6:.0f}": rate >= LEAST_RATE,
    }
    for claim, is_met in met.items():
        out(f"{claim}: {'met' if is_met else 'MISSED'}")
    if arguments.json:
        print(json.dumps({"benchmark": "caches", "runs": runs, "numpy_rate": numpy_rate, "ratio": ratio, "met": met}))
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
