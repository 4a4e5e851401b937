"""How systems read the rows of the same batches, as stores within one budget; benchmarks/peers.py prints them.

PyG+ maps the table. Ginex caches by Belady's rule and reads a page of 4 KiB for each row that it lacks. GNNDrive reads
each row alone into a buffer that batches share. DiskGNN packs the rows of batches ahead, which counts. AGNES reads
blocks of 1 MiB, each once for as many batches as fit in memory (its hyperbatch), one after the other; its loop is
Python's here, so that only its reads and bytes compare. Each runs in a process and control group of its own,
`peers_reading.py DATASET SYSTEM SHARE BATCHES THREADS`, which prints its costs.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baseline_stores import PAGES_IN_FLIGHT_BYTES, reading_pages
from diskhop._native import copy_rows, keyed_permutation
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.io.engine import open_engine
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.plans import SampledPlan
from diskhop.protocols import Bytes, NodeIds, NodeRows, Purpose, neighbor_spec
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.seeds import SeedSet
from diskhop.sampling.topology import Topology, open_topology, topology_bytes
from diskhop.stores.stores import STORES
from diskhop.system.memory import default_threads
from diskhop.system.transfers import transfers
from fetching import resident_bytes
from turns import peak_rss_bytes

FANOUT, BATCH_SIZE, SEED = (10, 10, 10), 1000, 0
OURS, IN_MEMORY, AGNES = "diskhop", "in memory", "AGNES"
STORE_OF = {
    IN_MEMORY: "memory",
    OURS: "auto",
    "PyG+": "mapped",
    "Ginex": "belady",
    "GNNDrive": "shared",
    "DiskGNN": "packed",
    AGNES: "direct",
}
# Besides the rows that stay: neighbour lists, batches in flight, buffers for reading.
WORK_BYTES = 700_000_000
_WITHOUT_CACHE = ("memory", "mapped", "direct")
_BLOCK_BYTES, _READERS, _SAMPLING_BYTES = 1 << 20, 8, 64 << 20


def memory_bytes(dataset: Dataset, system: str, share: float) -> int:
    """Return the memory of a system that may keep a share of the rows; all of them in memory take a bit more."""
    if system == IN_MEMORY:
        return 2 * WORK_BYTES + table_bytes(dataset)
    return WORK_BYTES + int(share * table_bytes(dataset))


def table_bytes(dataset: Dataset) -> int:
    """Return the bytes of all rows."""
    table = dataset.feature_table()
    assert table is not None
    return table.num_rows * table.row_stride


def beyond_memory_bytes(system: str) -> int:
    """Return the memory that a stand-in takes in addition to its plan."""
    return PAGES_IN_FLIGHT_BYTES if system == "Ginex" else 0


def seeds_of(dataset: Dataset) -> SeedSet:
    """Return the training nodes in the order of the first epoch."""
    train_ids = dataset.split_rows("train")
    assert train_ids is not None
    shuffled = NodeRows(train_ids[keyed_permutation(len(train_ids), SEED, int(Purpose.TRAIN), 0)])
    sampler = neighbor_spec(FANOUT)
    return SeedSet(purpose=Purpose.TRAIN, seeds=shuffled, batch_size=BATCH_SIZE, sampler=sampler, is_shuffled=True)


def plan_of(dataset: Dataset, system: str, share: float, num_batches: int, threads: int | None) -> SampledPlan:
    """Plan a system. Raises BudgetError."""
    store, seeds = STORE_OF[system], seeds_of(dataset)
    wanted = Workload(
        seed_sets=(seeds,),
        seed=SEED,
        store=store,
        threads=threads,
        cache_bytes=None if store in _WITHOUT_CACHE else int(share * table_bytes(dataset)),
        max_batches=num_batches,
        reads_lent_rows=True,
        also_held={"seeds": 2 * seeds.seeds.nbytes},
    )
    plan = choose_plan(dataset, wanted, Budget(memory_bytes(dataset, system, share)))
    if system == "GNNDrive":
        return replace(plan, max_gap_bytes=0)
    if system == "Ginex":
        STORES[system] = reading_pages(STORES[store], system)
        return replace(plan, store=system, max_gap_bytes=0)
    return plan


def read_batches(
    dataset: Dataset, system: str, share: float, num_batches: int, threads: int | None = None
) -> dict[str, Any]:
    """Read the rows of the first batches of an epoch, and return the costs."""
    num_bytes = memory_bytes(dataset, system, share)
    if system == AGNES:
        return Hyperbatches(dataset, num_bytes).read(num_batches)
    budget, plan = Budget(num_bytes), plan_of(dataset, system, share, num_batches, threads)
    seeds = seeds_of(dataset)
    before_bytes, opened = resident_bytes(), time.perf_counter()
    with (
        budget.reserve("seeds", 2 * seeds.seeds.nbytes),
        open_pipeline(dataset, plan, budget, expected=seeds) as pipeline,
    ):
        costs = Costs(opened)
        first = Pass(
            seeds=seeds.seeds,
            numbers=range(num_batches),
            batch_size=BATCH_SIZE,
            sampler=seeds.sampler,
            seed=SEED,
            purpose=seeds.purpose,
            epoch=0,
        )
        with pipeline.run(first) as stream:
            for batch in stream:
                costs.add(batch.sampled.node_ids, batch.counts.reads + batch.sampled.topology_reads)
                del batch
        found = costs.per_batch(plan.store)
    return found | {"overhead": max(before_bytes, peak_rss_bytes() - budget.peak_bytes)}


class Costs:
    """Costs of batches from now on. opened: time at which the system began to open."""

    def __init__(self, opened: float) -> None:
        self._before, self._began = transfers(), time.perf_counter()
        self._opening = self._began - opened
        self._num_batches = self._num_reads = self._digest = 0

    def add(self, ids: NodeIds, num_reads: int = 0) -> None:
        """Add a batch."""
        self._num_batches += 1
        self._num_reads += num_reads
        self._digest += zlib.crc32(ids.data)

    def per_batch(self, remark: str) -> dict[str, Any]:
        """Return means per batch. `batches` is a checksum of the nodes of all batches, in any order."""
        now, count = transfers(), self._num_batches
        return {
            "seconds": (time.perf_counter() - self._began) / count,
            "opening": self._opening,
            "reads": self._num_reads / count,
            "bytes": (now.bytes_read - self._before.bytes_read) / count,
            "written": (now.bytes_written - self._before.bytes_written) / count,
            "peak": peak_rss_bytes(),
            "batches": self._digest,
            "remark": remark,
        }


class Hyperbatches:
    """Reads as AGNES does: samples as many batches as their rows fit in memory, then passes over the blocks.

    num_passes: hyperbatches so far.
    """

    def __init__(self, dataset: Dataset, num_bytes: int) -> None:
        table = dataset.feature_table()
        assert table is not None
        if _BLOCK_BYTES % table.row_stride:
            raise ValueError(f"rows of {table.row_stride} bytes lie across blocks of {_BLOCK_BYTES}")
        self._dataset, self._table = dataset, table
        lists_bytes = topology_bytes(dataset.topology, "memory")
        # What is left is for the rows of a hyperbatch, of which a batch's are copied.
        self._most_rows = (num_bytes - lists_bytes - _READERS * _BLOCK_BYTES - _SAMPLING_BYTES) // table.row_stride
        self._rows = self._made = np.empty((0, table.row_stride), np.uint8)
        self.num_passes = self.num_reads = 0

    def read(self, num_batches: int) -> dict[str, Any]:
        """Read the rows of the first batches, and return the costs."""
        opened = time.perf_counter()
        engine = open_engine("threads", 1).engine
        with open_topology(self._dataset.topology, "memory", engine, Budget(1 << 40)) as topology:
            costs = Costs(opened)
            for ids, _ in self.batches(topology, num_batches):
                costs.add(ids)
            found = costs.per_batch(f"{num_batches / self.num_passes:.1f} batches together")
        return found | {"reads": self.num_reads / num_batches}

    def batches(self, topology: Topology, num_batches: int) -> Iterator[tuple[NodeIds, Bytes]]:
        """Yield the node ids of each batch, and their rows, which are valid until the next batch."""
        rows = np.empty(0, np.int64)
        together: list[NodeIds] = []
        descriptor = os.open(self._table.path, os.O_RDONLY | os.O_DIRECT)
        try:
            with ThreadPoolExecutor(_READERS) as readers, ThreadPoolExecutor(default_threads()) as samplers:
                for ids in samplers.map(partial(self.sample, topology), range(num_batches)):
                    self._make_room(len(ids))
                    union = np.union1d(rows, ids)
                    if together and len(union) > len(self._rows):
                        yield from self._gathered(rows, together, readers, descriptor)
                        together, union = [], np.unique(ids)
                    rows = union
                    together.append(ids)
                yield from self._gathered(rows, together, readers, descriptor)
        finally:
            os.close(descriptor)

    def sample(self, topology: Topology, number: int) -> NodeIds:
        """Return the node ids of a batch."""
        seeds = seeds_of(self._dataset)
        sampler = open_sampler(topology, seeds.sampler, SEED)
        part = seeds.seeds[number * BATCH_SIZE :][:BATCH_SIZE]
        return sampler.sample(part, purpose=seeds.purpose, epoch=0, number=number).node_ids.copy()

    def _make_room(self, num_rows: int) -> None:
        """Divide the memory between a hyperbatch and a batch, of which the first one tells how large they are."""
        if len(self._made) >= num_rows:
            return
        most = num_rows + num_rows // 4
        left = self._most_rows - most
        if left < num_rows or len(self._made):
            raise ValueError(f"a batch of {num_rows} rows does not fit in memory for {self._most_rows}")
        self._made = np.empty((most, self._table.row_stride), np.uint8)
        self._rows = np.empty((left, self._table.row_stride), np.uint8)

    def _gathered(
        self, rows: NDArray[np.int64], batches: list[NodeIds], readers: ThreadPoolExecutor, descriptor: int
    ) -> Iterator[tuple[NodeIds, Bytes]]:
        """Read the blocks of rows, which are ascending, and yield each batch's rows of them."""
        stride = self._table.row_stride
        per_block = _BLOCK_BYTES // stride
        blocks, starts = np.unique(rows // per_block, return_index=True)
        ends = np.append(starts[1:], len(rows))
        buffers = [mmap.mmap(-1, _BLOCK_BYTES) for _ in range(_READERS)]

        def take(block: int, start: int, end: int) -> None:
            buffer = buffers.pop()
            num_bytes = os.preadv(descriptor, [buffer], block * _BLOCK_BYTES)
            found = np.frombuffer(buffer, np.uint8)[: num_bytes // stride * stride].reshape(-1, stride)
            copy_rows(found, rows[start:end] - block * per_block, self._rows[start:end], None)
            buffers.append(buffer)

        for _ in readers.map(take, blocks.tolist(), starts.tolist(), ends.tolist()):
            self.num_reads += 1
        self.num_passes += 1
        for ids in batches:
            made = self._made[: len(ids)]
            copy_rows(self._rows, np.searchsorted(rows, ids), made, None, default_threads())
            yield ids, made[:, : self._table.row_bytes]


def main() -> None:
    path, system, share, num_batches, threads = sys.argv[1:]
    costs = read_batches(open_dataset(Path(path)), system, float(share), int(num_batches), int(threads))
    print(json.dumps(costs))


if __name__ == "__main__":
    main()
