"""Ginex's phases (section 3.1): lists and rows with the same memory in turn, against both at once.

`in turn` samples a superbatch with all memory for lists, and then fetches it with all memory for rows; neither overlaps
with the other. `at once` divides the memory, by --neighbor-cache, in each of several ways, and samples the next
superbatch meanwhile; the fastest is compared. Both have the same budget, batches, disk space and store (`belady`).
Files are evicted before each side. With --step SECONDS each batch is held so long, as by a trainer that holds no core.

    python benchmarks/phases.py [--nodes N] [--edges E] [--memory SIZE] [--batches N] [--step S] [--turns N] [--json]
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

from diskhop.budget import Budget, format_bytes, parse_bytes
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.generating import GraphConfig
from diskhop.generating.graph import generate_graph
from diskhop.io.engine import open_engine
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.planning.store_plan import plan_store
from diskhop.planning.workload import Workload
from diskhop.protocols import NodeRows, Purpose, neighbor_spec
from diskhop.sampling.cached_topology import list_bytes
from diskhop.sampling.seeds import SeedSet, shuffled_seeds
from diskhop.system.transfers import transfers
from workloads import evict

BATCH_SIZE, FANOUTS, SEED = 500, (10, 5), 0
# Parts of the lists that are tried as --neighbor-cache.
SHARES = (1.0, 0.5, 0.25)


class Bench:
    def __init__(self, dataset: Dataset, memory_bytes: int, num_batches: int, step_seconds: float) -> None:
        self.dataset, self.memory_bytes, self.step_seconds = dataset, memory_bytes, step_seconds
        train = dataset.split_rows("train")
        assert train is not None
        self.numbers = range(num_batches)
        self.seeds = NodeRows(shuffled_seeds(train, SEED, 0)[: num_batches * BATCH_SIZE])

    def run(self, *, takes_turns: bool, **options: Any) -> dict[str, float]:
        """Seconds of opening and of a pass, bytes that the kernel read, and cached rows."""
        seed_set = SeedSet(
            purpose=Purpose.TRAIN,
            seeds=self.seeds,
            batch_size=BATCH_SIZE,
            sampler=neighbor_spec(FANOUTS),
            is_shuffled=True,
        )
        workload = Workload(seed_sets=(seed_set,), seed=SEED, store="belady", **options)
        # As the planner tries it: all lists may only have room where a single batch is in flight.
        most_in_flight = 1 if takes_turns else None
        budget = Budget(self.memory_bytes)
        plan = plan_store(
            self.dataset, workload, "belady", budget, most_in_flight=most_in_flight, takes_turns=takes_turns
        )
        wanted = Pass(
            seeds=self.seeds,
            numbers=self.numbers,
            batch_size=BATCH_SIZE,
            sampler=neighbor_spec(FANOUTS),
            seed=SEED,
            purpose=Purpose.TRAIN,
            epoch=0,
        )
        evict(self.dataset)
        started, read_before_bytes = time.perf_counter(), transfers().bytes_read
        with (
            open_pipeline(self.dataset, plan, Budget(self.memory_bytes)) as pipeline,
            pipeline.run(wanted) as stream,
        ):
            for batch in stream:
                time.sleep(self.step_seconds)
                del batch  # As in training: a batch kept is one more than reserved.
        return {
            "seconds": time.perf_counter() - started,
            "MB": (transfers().bytes_read - read_before_bytes) / 1e6,
            "rows": plan.share.cache_rows,
        }

    def turn(self) -> dict[str, float]:
        """Seconds, bytes and rows of each side."""
        sides = {"in turn": self.run(takes_turns=True)}
        for share in SHARES:
            lists = int(share * list_bytes(self.dataset.topology))
            sides[f"at once, {share}"] = self.run(takes_turns=False, neighbor_cache_bytes=lists)
        return {f"{side}: {what}": value for side, found in sides.items() for what, value in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=300_000)
    parser.add_argument("--edges", type=int, default=12_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--memory", type=parse_bytes, default=parse_bytes("130MB"))
    parser.add_argument("--batches", type=int, default=64)
    parser.add_argument("--step", type=float, default=0.0, help="seconds that each batch is held")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--data", type=Path, default=None, help="folder of the graph; default: a temporary one")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.data) as folder:
        path = Path(folder) / "graph"
        config = GraphConfig(
            kind="kronecker",
            num_nodes=given.nodes,
            num_edges=given.edges,
            dim=given.dim,
            num_classes=4,
            train_fraction=0.2,
            order="input",
            seed=1,
        )
        generate_graph(path, config, engine=open_engine("auto").engine)
        bench = Bench(open_dataset(path), given.memory, given.batches, given.step)
        turns = [bench.turn() for _ in range(given.turns)]
        lists, table = list_bytes(bench.dataset.topology), bench.dataset.feature_table()
    assert table is not None
    medians = {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
    best = min(medians[f"at once, {share}: seconds"] for share in SHARES)
    ratio = medians["in turn: seconds"] / best
    if given.json:
        print(json.dumps({"turns": turns, "medians": medians, "in_turn_over_at_once": ratio}, indent=1))
        return 0
    rows = format_bytes(table.num_rows * table.row_bytes)
    print(f"memory {format_bytes(given.memory)}, lists {format_bytes(lists)}, rows {rows}, {given.batches} batches")
    for name, median in medians.items():
        spread = f"{min(turn[name] for turn in turns):.4g} to {max(turn[name] for turn in turns):.4g}"
        print(f"{name:24} {median:10.4g}  ({spread})")
    print(f"in turn takes {ratio:.2f} of the seconds of the fastest division at once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
