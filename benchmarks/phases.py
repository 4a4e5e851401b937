"""Ginex's phases (section 3.4): all memory for lists while a superbatch is sampled, then all for rows, in this design.

Claim to decide (issue 43): sampling and fetching overlap here, so that lists and rows share the memory all along. Would
it be faster to sample all batches first with every list in memory, and then to fetch with all memory for rows? Both
sides have the same budget, batches and store (`belady`). The phases are measured in their favour: all batches are one
superbatch, the sampled ones are kept in memory that is not counted, and lists are loaded once. `overlapped` has the
superbatches of a run, and divides the memory in each of several ways by --neighbor-cache; the fastest is compared.

    python benchmarks/phases.py [--nodes N] [--edges E] [--memory SIZE] [--batches N] [--turns N] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from diskhop._native import BufferPool
from diskhop.budget import Budget, format_bytes, parse_bytes
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.generating import GraphConfig
from diskhop.generating.graph import generate_graph
from diskhop.io.engine import open_engine
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.policies.superbatches import FIRST_LENGTH
from diskhop.protocols import NodeRows, Purpose, SampledBatch, Sampler, SamplerSpec, neighbor_spec
from diskhop.sampling.cached_topology import list_bytes
from diskhop.sampling.samplers import SAMPLERS, open_sampler
from diskhop.sampling.seeds import SeedSet, shuffled_seeds
from diskhop.sampling.topology import open_topology
from diskhop.system.memory import default_threads

BATCH_SIZE, FANOUTS, SEED = 500, (10, 5), 0
RECORDED = "recorded"
# Parts of the lists that are tried as --neighbor-cache.
SHARES = (1.0, 0.25)


@dataclass(frozen=True)
class Recorded:
    """A sampler that returns batches which were sampled before."""

    batches: list[SampledBatch]
    workspace_bytes = reading_bytes = 0

    def sample(self, _seeds: Any, *, number: int, **_key: Any) -> SampledBatch:
        return self.batches[number]


class Bench:
    def __init__(self, dataset: Dataset, memory_bytes: int, num_batches: int) -> None:
        self.dataset, self.memory_bytes, self.num_batches = dataset, memory_bytes, num_batches
        train = dataset.split_rows("train")
        assert train is not None
        self.seeds = shuffled_seeds(train, SEED, 0)[: num_batches * BATCH_SIZE]

    def sample_all(self) -> tuple[float, list[SampledBatch]]:
        """Seconds of loading every list and sampling all batches, and the batches."""
        started = time.perf_counter()
        engine = open_engine("auto").engine
        with open_topology(self.dataset.topology, "memory", engine, Budget(1 << 40)) as topology:
            sampler = open_sampler(topology, neighbor_spec(FANOUTS), SEED, BufferPool(0))

            def sample(number: int) -> SampledBatch:
                seeds = self.seeds[number * BATCH_SIZE :][:BATCH_SIZE]
                return sampler.sample(seeds, purpose=Purpose.TRAIN, epoch=0, number=number, times=None)

            with ThreadPoolExecutor(default_threads()) as threads:
                batches = list(threads.map(sample, range(self.num_batches)))
        return time.perf_counter() - started, batches

    def fetch_all(self, spec: SamplerSpec, first_superbatch: int, **changes: Any) -> tuple[float, int]:
        """Seconds of opening and of a pass through `belady`, and the rows that it caches."""
        seeds = NodeRows(self.seeds)
        seed_set = SeedSet(
            purpose=Purpose.TRAIN, seeds=seeds, batch_size=BATCH_SIZE, sampler=neighbor_spec(FANOUTS), is_shuffled=True
        )
        workload = Workload(seed_sets=(seed_set,), seed=SEED, store="belady", **changes)
        plan = choose_plan(self.dataset, workload, Budget(self.memory_bytes))
        plan = replace(plan, share=replace(plan.share, first_superbatch=first_superbatch))
        wanted = Pass(
            seeds=seeds,
            numbers=range(self.num_batches),
            batch_size=BATCH_SIZE,
            sampler=spec,
            seed=SEED,
            purpose=Purpose.TRAIN,
            epoch=0,
        )
        started = time.perf_counter()
        with open_pipeline(self.dataset, plan, Budget(self.memory_bytes)) as pipeline, pipeline.run(wanted) as stream:
            for batch in stream:
                del batch  # As in training: a batch kept is one more than reserved.
        return time.perf_counter() - started, plan.share.cache_rows

    def turn(self) -> dict[str, float]:
        """Seconds of each side, and cached rows."""
        sampling, batches = self.sample_all()
        kind = replace(
            SAMPLERS["neighbor"], name=RECORDED, open=lambda *_: cast(Sampler, Recorded(batches)), check=lambda _: None
        )
        SAMPLERS[RECORDED] = kind
        fetching, rows = self.fetch_all(SamplerSpec(RECORDED, ()), self.num_batches, is_given=True)
        found = {
            "sampling first": sampling,
            "then fetching": fetching,
            "phases": sampling + fetching,
            "phases' rows": rows,
        }
        for share in SHARES:
            lists = int(share * list_bytes(self.dataset.topology))
            seconds, rows = self.fetch_all(neighbor_spec(FANOUTS), FIRST_LENGTH, neighbor_cache_bytes=lists)
            found |= {f"overlapped {share}": seconds, f"rows {share}": rows}
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=300_000)
    parser.add_argument("--edges", type=int, default=12_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--memory", type=parse_bytes, default=parse_bytes("130MB"))
    parser.add_argument("--batches", type=int, default=64)
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
        bench = Bench(open_dataset(path), given.memory, given.batches)
        turns = [bench.turn() for _ in range(given.turns)]
        lists, table = list_bytes(bench.dataset.topology), bench.dataset.features()
    assert table is not None
    medians = {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
    best = min(medians[f"overlapped {share}"] for share in SHARES)
    ratio = medians["phases"] / best
    if given.json:
        print(json.dumps({"turns": turns, "medians": medians, "phases_over_overlapped": ratio}, indent=1))
        return 0
    rows = format_bytes(table.num_rows * table.row_bytes)
    print(f"memory {format_bytes(given.memory)}, lists {format_bytes(lists)}, rows {rows}, {given.batches} batches")
    for name, median in medians.items():
        spread = f"{min(turn[name] for turn in turns):.4g} to {max(turn[name] for turn in turns):.4g}"
        print(f"{name:20} {median:10.4g}  ({spread})")
    print(f"phases take {ratio:.2f} of the seconds of the fastest overlapped division")
    return 0


if __name__ == "__main__":
    sys.exit(main())
