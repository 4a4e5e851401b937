"""Sampling from lists that do not fit in memory: the reads left with a neighbour cache, and their cost.

Claim (issue 4): on workload W (kronecker, hot order, 4 M nodes, 60 M edges; batches of 1000, fan-out 10,10,10) with a
third of the topology's bytes for the cache, and the file evicted first, a batch takes at most 1.5 times its seconds in
memory plus the time of its reads at the disk's rate: reads * overhead + bytes / bandwidth, measured in the same turn.
Every side samples with the same number of threads, those from the disk sharing their reads; the seconds of a batch are
those of the turn by its batches. Batches are the same, bit for bit. For comparison: the same with an empty cache, and
with the file mapped.

Claim (issue 46): with a fifth of the topology's bytes, as many threads as the planner lets share reads need at most a
fourth of the disk's seconds per batch that one thread needs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from caches import BATCH_SIZE, FANOUT, make_graph
from diskhop._native import BufferPool, keyed_permutation
from diskhop.budget import Budget
from diskhop.dataset.dataset import open_dataset
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.disk.model import DiskModel
from diskhop.disk.probe import probe
from diskhop.io.engine import open_engine
from diskhop.planning.lists import MOST_SHARING_READS
from diskhop.protocols import NodeIds, Purpose, SampledBatch, Sampler, neighbor_spec
from diskhop.sampling.cached_topology import (
    STAGING_BYTES,
    CachedTopology,
    NeighborCacheOptions,
    cached_topology_bytes,
    open_cached_topology,
    room_for_lists,
)
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.topology import Topology, open_topology, topology_bytes
from diskhop.system.transfers import transfers

MOST_OF_MEMORY = 1.5
# Threads that sample together with a fifth of the topology's bytes; the last are the planner's most.
TOGETHER, MOST_OF_ALONE = (1, 2, 4, 8, MOST_SHARING_READS), 1 / 4
MAPPED_BATCHES = 3
_BATCH_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Means per batch. kernel_bytes: bytes that the kernel read from the disk. device_seconds: predicted."""

    side: str
    open_seconds: float
    seconds: float
    reads: float
    bytes_read: float
    kernel_bytes: float
    device_seconds: float


def evict(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


class Bench:
    """The graph, its seeds, and hashes of the batches from memory."""

    def __init__(self, files: TopologyFiles, train_ids: NodeIds, num_batches: int, num_threads: int) -> None:
        self.files = files
        seeds = train_ids[keyed_permutation(len(train_ids), 0, int(Purpose.TRAIN), 0)]
        self.parts = [seeds[start:][:BATCH_SIZE] for start in range(0, num_batches * BATCH_SIZE, BATCH_SIZE)]
        self.engine = open_engine("auto").engine
        self.num_threads = num_threads
        self.pool = BufferPool(STAGING_BYTES + max(num_threads, *TOGETHER) * _BATCH_BYTES)
        self.sums: dict[int, int] = {}
        self.num_unequal = 0

    def turn(self, side: str, cache_bytes: int, device: DiskModel, num_threads: int | None = None) -> Turn:
        """Sample all batches. num_threads: that sample; None: those of this benchmark."""
        num_threads = num_threads or self.num_threads
        evict(self.files.indices_path)
        started = time.perf_counter()
        with self.open(side, cache_bytes, device) as topology:
            open_seconds = time.perf_counter() - started
            sampler = open_sampler(topology, neighbor_spec(FANOUT), 0, self.pool)
            parts = self.parts[:MAPPED_BATCHES] if side == "mapped" else self.parts
            if side != "mapped":  # the page cache would then contain these batches
                self.sample(sampler, 0)
            before_bytes = transfers().bytes_read
            with ThreadPoolExecutor(num_threads) as threads:
                started = time.perf_counter()
                counts = list(threads.map(lambda number: self.count(sampler, number), range(len(parts))))
                seconds = time.perf_counter() - started
            kernel_bytes = transfers().bytes_read - before_bytes
            reads, bytes_read = (sum(each) for each in zip(*counts, strict=True))
            # Again with the same threads, but untimed: all are kept until they are compared.
            with ThreadPoolExecutor(num_threads) as threads:
                for batch in threads.map(lambda number: self.sample(sampler, number), range(len(parts))):
                    self.compare(batch)
        device_seconds = reads * device.overhead_seconds + bytes_read / device.bytes_per_second
        return Turn(
            side=side,
            open_seconds=open_seconds,
            seconds=seconds / len(parts),
            reads=reads / len(parts),
            bytes_read=bytes_read / len(parts),
            kernel_bytes=kernel_bytes / len(parts),
            device_seconds=device_seconds / len(parts),
        )

    @contextmanager
    def open(self, side: str, cache_bytes: int, device: DiskModel) -> Iterator[Topology | CachedTopology]:
        budget = Budget(1 << 40)
        if side in ("memory", "mapped"):
            with open_topology(self.files, "memory" if side == "memory" else "mapped", self.engine, budget) as topology:
                yield topology
            return
        options = NeighborCacheOptions(
            cache_bytes=cache_bytes,
            max_gap_bytes=device.break_even_gap_bytes,
        )
        with open_cached_topology(self.files, options, self.engine, budget, self.pool) as cached:
            yield cached

    def sample(self, sampler: Sampler, number: int) -> SampledBatch:
        return sampler.sample(self.parts[number], purpose=Purpose.TRAIN, epoch=0, number=number)

    def count(self, sampler: Sampler, number: int) -> tuple[int, int]:
        """Sample a batch and return its reads and bytes read; the next batch reuses its memory."""
        batch = self.sample(sampler, number)
        return batch.topology_reads, batch.topology_bytes_read

    def compare(self, batch: SampledBatch) -> None:
        """Compare a batch with the first batch of this number, by a hash of its arrays."""
        arrays = (batch.node_ids, batch.indptr, batch.sources, batch.edge_positions)
        found = hash(tuple(array.tobytes() for array in arrays))
        self.num_unequal += self.sums.setdefault(batch.number, found) != found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=Path(), help="a folder on the disk to use")
    parser.add_argument("--dataset", type=Path, help="workload W; default: made now, without features")
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=12, help="sampling threads")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    arguments = parser.parse_args()

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="diskhop-bench-") as folder:
        dataset = open_dataset(arguments.dataset) if arguments.dataset else make_graph(Path(folder))
        files, train_ids = dataset.topology, dataset.split_rows("train")
        assert train_ids is not None
        whole_bytes = topology_bytes(files, "memory")
        cache_bytes = room_for_lists(files, whole_bytes // 3)
        assert cached_topology_bytes(files, cache_bytes) <= whole_bytes // 3
        bench = Bench(files, train_ids, arguments.batches, arguments.threads)
        turns: list[dict[str, Turn]] = []
        devices: list[DiskModel] = []
        for _ in range(arguments.turns):
            devices.append(probe(dataset.path, existing_file=files.indices_path, measure_again=True))
            sides = ("memory", "cached", "empty cache") + (("mapped",) if not turns else ())
            turns.append(
                {side: bench.turn(side, cache_bytes if side == "cached" else 0, devices[-1]) for side in sides}
            )
        fifth = room_for_lists(files, whole_bytes // 5)
        together = {count: bench.turn("cached", fifth, devices[-1], count) for count in TOGETHER}

    out(
        f"{files.num_nodes:,} nodes, {files.num_edges:,} edges, topology {whole_bytes / 1e6:.0f} MB; a third of that, "
        f"{cache_bytes / 1e6:.0f} MB, caches lists; batch {BATCH_SIZE}, fan-out {','.join(map(str, FANOUT))}, "
        f"{arguments.batches} batches per turn, {arguments.turns} turns, "
        f"{arguments.threads} threads sample on {os.cpu_count()} cores"
    )
    rates = sorted(device.bytes_per_second / 1e9 for device in devices)
    overheads = sorted(device.overhead_seconds * 1e6 for device in devices)
    out(
        f"device, by turn: {overheads[0]:.1f}..{overheads[-1]:.1f} us/read, {rates[0]:.2f}..{rates[-1]:.2f} GB/s\n\n"
        f"{'':14}{'open s':>8}{'ms (min..max)':>26}{'reads':>9}{'MB':>8}{'MB, kernel':>12}{'device ms':>11}"
    )
    for side in ("memory", "cached", "empty cache", "mapped"):
        of_side = [turn[side] for turn in turns if side in turn]
        milliseconds = [turn.seconds * 1e3 for turn in of_side]
        spread = f"{statistics.median(milliseconds):.1f} ({min(milliseconds):.1f}..{max(milliseconds):.1f})"
        last = of_side[-1]
        device_ms = statistics.median(turn.device_seconds for turn in of_side) * 1e3
        out(
            f"{side:14}{statistics.median(turn.open_seconds for turn in of_side):8.2f}{spread:>26}{last.reads:9,.0f}"
            f"{last.bytes_read / 1e6:8.1f}{last.kernel_bytes / 1e6:12.1f}{device_ms:11.1f}"
        )
    shares = [
        turn["cached"].seconds / (MOST_OF_MEMORY * turn["memory"].seconds + turn["cached"].device_seconds)
        for turn in turns
    ]
    share = statistics.median(shares)
    out(
        f"\n{fifth / 1e6:.0f} MB of the lists in memory\n{'threads':>14}{'ms':>8}{'reads':>9}{'MB':>8}{'device ms':>11}"
    )
    for count, each in together.items():
        cells = f"{count:14}{each.seconds * 1e3:8.1f}{each.reads:9,.0f}{each.bytes_read / 1e6:8.1f}"
        out(f"{cells}{each.device_seconds * 1e3:11.1f}")
    of_alone = together[TOGETHER[-1]].device_seconds / together[1].device_seconds
    out(f"mapped: the first {MAPPED_BATCHES} batches alone, its page cache not bounded\n")
    met = {
        f"cached takes {share:.2f} ({min(shares):.2f}..{max(shares):.2f}) of {MOST_OF_MEMORY} times memory's time and "
        "its reads' at the device's rate, at most 1": share <= 1,
        f"{TOGETHER[-1]} threads need {of_alone:.2f} of the disk's time of one, at most {MOST_OF_ALONE}": of_alone
        <= MOST_OF_ALONE,
        f"{bench.num_unequal} batches differ from those in memory": bench.num_unequal == 0,
        "what was read came from the disk": all(
            turn["cached"].kernel_bytes >= turn["cached"].bytes_read for turn in turns
        ),
    }
    for claim, is_met in met.items():
        out(f"{claim}: {'met' if is_met else 'MISSED'}")
    if arguments.json:
        document = {
            "benchmark": "topology",
            "cache_bytes": cache_bytes,
            "turns": [{side: asdict(turn) for side, turn in each.items()} for each in turns],
            "devices": [device.to_dict() for device in devices],
            "share": share,
            "together": {count: asdict(each) for count, each in together.items()},
            "met": met,
        }
        print(json.dumps(document))
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
