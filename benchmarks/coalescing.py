"""Reads of sampled rows merged across gaps of several lengths: fixed ones, and the break-even of the disk model.

Claim (issue 4): on W and U the model's choice takes at most 10 % longer than the best of the fixed gaps, 0 to 256 KiB.
Reads are those of the store `direct`, one batch after the other. Every batch is read with all gaps alternately,
forwards and backwards, so that other load on the disk affects all. Direct I/O bypasses the page cache; where it is not
available, files are evicted before every turn. A property in tests/property/test_coalesce.py shows that no other way of
merging costs less by the model.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from diskhop._native import BufferPool, File, RowReader
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import DiskModel
from diskhop.io.engine import open_engine
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.protocols import NodeIds
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.seeds import SeedSet
from diskhop.sampling.topology import open_topology
from diskhop.stores.resources import StoreResources, empty_rows, open_reader
from turns import peak_rss_bytes
from workloads import BATCH_SIZE, DEFAULT_FOLDER, SEED, WORKLOADS, evict, find_dataset, measure_device

FIXED_GAPS_BYTES = (0, *(4096 << power for power in range(7)))
MOST_OF_BEST = 1.10


@dataclass(kw_only=True)
class Gap:
    """Turns with one gap; each list has one value per turn."""

    num_bytes: int
    is_models: bool
    seconds: list[float] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    bytes_read: list[int] = field(default_factory=list)

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.seconds)

    def predict_seconds(self, device: DiskModel) -> float:
        """Predict the seconds of a turn by the disk model."""
        return (
            statistics.fmean(self.reads) * device.overhead_seconds
            + statistics.fmean(self.bytes_read) / device.bytes_per_second
        )


def sample_batches(dataset: Dataset, seed_set: SeedSet, num_batches: int) -> list[NodeIds]:
    """Sample the first batches of an epoch and return their node ids."""
    with open_topology(dataset.topology, "mapped", open_engine("threads", 1).engine, Budget(1)) as topology:
        sampler = open_sampler(topology, seed_set.sampler, SEED)
        batches = []
        for number in range(num_batches):
            seeds = seed_set.seeds[number * BATCH_SIZE :][:BATCH_SIZE]
            sampled = sampler.sample(seeds, purpose=seed_set.purpose, epoch=0, number=number)
            batches.append(sampled.node_ids.copy())
    return batches


def measure(dataset: Dataset, name: str, device: DiskModel, num_batches: int, repeats: int) -> list[Gap]:
    """Read every batch with every gap, `repeats` times."""
    table = dataset.feature_table()
    assert table is not None
    workload = WORKLOADS[name]
    seed_set = workload.seed_set(dataset)
    # Staging, depth and the longest read are those of a run.
    wanted = Workload(seed_sets=(seed_set,), seed=SEED, store="direct")
    plan = choose_plan(dataset, wanted, Budget(workload.memory_bytes("direct", dataset)), device)
    resources = StoreResources(
        engine=open_engine(plan.engine, plan.engine_depth).engine,
        pool=BufferPool(plan.batch_bytes + plan.staging_bytes),
        max_gap_bytes=plan.max_gap_bytes,
        max_read_bytes=plan.max_read_bytes,
        staging_bytes=plan.staging_bytes,
        threads=plan.threads,
    )
    gaps = [Gap(num_bytes=num_bytes, is_models=False) for num_bytes in FIXED_GAPS_BYTES]
    gaps.append(Gap(num_bytes=plan.max_gap_bytes, is_models=True))
    readers = [open_reader(RowReader, table, resources, gap.num_bytes) for gap in gaps]
    batches = sample_batches(dataset, seed_set, num_batches)
    out = empty_rows(resources.pool, max(map(len, batches)), table.row_bytes)
    turns = list(zip(gaps, readers, strict=True))
    is_direct = File(str(table.path), "read").direct
    for _ in range(repeats):
        for ids in batches:
            for gap, reader in turns:
                if not is_direct:
                    evict(dataset)
                started = time.perf_counter()
                reads, bytes_read, _ = reader.read(ids, out[: len(ids)])
                gap.seconds.append(time.perf_counter() - started)
                gap.reads.append(reads)
                gap.bytes_read.append(bytes_read)
            turns.reverse()
    return gaps


def print_gaps(name: str, gaps: list[Gap], device: DiskModel, out: Callable[[str], None]) -> None:
    out(f"\n{name}, per batch:\n{'gap':>12}{'seconds (min..max)':>26}{'predicted':>11}{'reads':>10}{'MB':>9}")
    for gap in sorted(gaps, key=lambda gap: gap.num_bytes):
        seconds = f"{gap.median_seconds:.3f} ({min(gap.seconds):.3f}..{max(gap.seconds):.3f})"
        out(
            f"{gap.num_bytes / 1024:8.1f} KiB{seconds:>26}{gap.predict_seconds(device):11.3f}"
            f"{statistics.fmean(gap.reads):10,.0f}{statistics.fmean(gap.bytes_read) / 1e6:9.1f}"
            f"{'  the model' if gap.is_models else ''}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workload", choices=[*WORKLOADS, "all"], default="all", help="all: W and U")
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="folder of w and u, generated if missing")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3, help="turns of every batch with every gap")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the tables on stderr")
    arguments = parser.parse_args()

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    documents, claims = {}, {}
    for name in ["W", "U"] if arguments.workload == "all" else [arguments.workload]:
        dataset = find_dataset(name, arguments.dir)
        device = measure_device(dataset)
        gaps = measure(dataset, name, device, arguments.batches, arguments.repeats)
        print_gaps(name, gaps, device, out)
        best = min((gap for gap in gaps if not gap.is_models), key=lambda gap: gap.median_seconds)
        ratio = gaps[-1].median_seconds / best.median_seconds
        best_gap, models_gap = f"{best.num_bytes >> 10} KiB", f"{gaps[-1].num_bytes / 1024:.1f} KiB"
        claims[f"{name}: {models_gap} take {ratio:.3f} of {best_gap}'s time, at most {MOST_OF_BEST}"] = (
            ratio <= MOST_OF_BEST
        )
        documents[name] = {"device": device.to_dict(), "gaps": [asdict(gap) for gap in gaps], "ratio": ratio}
    out(f"\npeak memory {peak_rss_bytes() / 1e6:,.0f} MB")
    for claim, is_met in claims.items():
        out(f"{claim}: {'met' if is_met else 'MISSED'}")
    if arguments.json:
        print(json.dumps({"benchmark": "coalescing", "workloads": documents, "claims": claims}, indent=1))
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
