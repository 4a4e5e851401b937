"""A pass over the batches of a workload without a model, through one store; prints the costs of each batch as JSON.

benchmarks/stores.py runs it in its own process: `fetching.py WORKLOAD DATASET STORE BATCHES CACHE [WITHOUT]`, where
WITHOUT is one of the IDEAS in switches.py.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from diskhop._native import copy_rows
from diskhop.budget import Budget, parse_bytes
from diskhop.counters import FetchCounts
from diskhop.dataset.dataset import open_dataset
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.protocols import Bytes, MakeRoom, NodeIds, SampledBatch, Table
from diskhop.sampling.seeds import count_batches
from diskhop.stores.gathering import GatheringStore
from diskhop.stores.resources import StoreResources
from diskhop.stores.stores import STORES
from diskhop.system.transfers import transfers
from switches import without_idea
from turns import peak_rss_bytes
from workloads import BATCH_SIZE, PLAIN_MAP, SEED, WORKLOADS

_THREADS_PER_CORE = 4


def run_fetching(
    name: str,
    path: Path,
    store: str,
    num_batches: int,
    cache: str,
    after_batch: Callable[[], object],
    *,
    ordered: bool = False,
) -> dict[str, Any]:
    """Fetch the first batches of the first epoch, and return their costs and those of this process."""
    workload, dataset = WORKLOADS[name], open_dataset(path)
    seed_set = workload.seed_set(dataset)
    own_bytes = {"seeds": 2 * seed_set.seeds.nbytes}
    wanted = Workload(
        seed_sets=(seed_set,),
        seed=SEED,
        store=store,
        cache_bytes=parse_bytes(cache) if "cache" in STORES[store].uses else None,
        ordered=ordered,
        # As in training.
        reads_lent_rows=True,
        also_held=own_bytes,
    )
    budget = Budget(workload.memory_bytes(store, dataset))
    resident_before_bytes = resident_bytes()
    plan = choose_plan(dataset, wanted, budget)
    batches = []
    opened = time.perf_counter()
    with (
        budget.reserve("seeds", own_bytes["seeds"]),
        open_pipeline(dataset, plan, budget, expected=seed_set) as pipeline,
    ):
        clock = pipeline.store = SubmissionClock(pipeline.store)
        read_before_bytes = transfers().bytes_read
        began = arrived = time.perf_counter()
        first_batches = Pass(
            seeds=seed_set.seeds,
            numbers=range(count_batches(len(seed_set.seeds), BATCH_SIZE, num_batches)),
            batch_size=BATCH_SIZE,
            sampler=seed_set.sampler,
            seed=SEED,
            purpose=seed_set.purpose,
            epoch=0,
        )
        with pipeline.run(first_batches) as stream:
            # Not by zip, which would keep a batch while the next is fetched.
            for batch in stream:
                # From when the store had this batch and no longer the one before.
                since, arrived = max(arrived, clock.submitted[batch.sampled.number]), time.perf_counter()
                batches.append(
                    {
                        "fetching_seconds": arrived - since,
                        "sample_seconds": batch.sample_seconds,
                        "stall_seconds": batch.stall_seconds,
                        **asdict(batch.counts),
                    }
                )
                del batch  # As in training: a batch kept is one more than reserved.
                after_batch()
        wall_seconds = time.perf_counter() - began
        rows_twice = count_rows_twice(clock) if "ordered" in STORES[store].uses else None
        bytes_from_disk = transfers().bytes_read - read_before_bytes
    peak_bytes = peak_rss_bytes()
    return {
        "wall_seconds": wall_seconds,
        "opening_seconds": began - opened,
        "bytes_from_disk": bytes_from_disk,
        "rows_twice": rows_twice,
        "most_at_once": clock.most_at_once,
        "peak_rss_bytes": peak_bytes,
        "overhead_bytes": max(resident_before_bytes, peak_bytes - budget.peak_bytes),
        "plan": {**plan.to_dict(), "reserved": budget.table()},
        "batches": batches,
    }


def count_rows_twice(store: Any) -> int:
    """Count rows that were read although they were resident or in flight, for a shared buffer with totals."""
    read, dropped, resident = store.totals
    return int(read - dropped - resident)


class SubmissionClock:
    """A store that records when each batch was admitted, by its number, and the most batches fetched concurrently."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._num_in_flight = 0
        self.submitted: dict[int, float] = {}
        self.most_at_once = 0

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> Any:
        def admit(num_bytes: int) -> None:
            make_room(num_bytes)
            self.submitted[batch.number] = time.perf_counter()
            with self._lock:
                self._num_in_flight += 1
                self.most_at_once = max(self.most_at_once, self._num_in_flight)

        return self._store.submit(batch, admit)

    def collect(self, ticket: Any) -> Any:
        rows = self._store.collect(ticket)
        with self._lock:
            self._num_in_flight -= 1
        return rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def open_plain_map(table: Table, resources: StoreResources) -> GatheringStore:
    """Open `mapped` without its advice: the kernel reads ahead for every touch."""
    rows = np.memmap(table.path, np.uint8, "r", shape=(table.num_rows, table.row_stride))[:, : table.row_bytes]

    def read_into(ids: NodeIds, out: Bytes) -> FetchCounts:
        bytes_copied = copy_rows(rows, ids, out, None, _THREADS_PER_CORE * resources.threads)
        return FetchCounts(rows_requested=len(ids), bytes_needed=out.nbytes, bytes_copied=bytes_copied)

    return GatheringStore(table, resources, read_into)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    name, path, store, num_batches, cache, *without = sys.argv[1:]
    STORES[PLAIN_MAP] = replace(STORES["mapped"], name=PLAIN_MAP, open=open_plain_map)
    store, after_batch = without_idea(without[0], store) if without else (store, lambda: None)
    print(json.dumps(run_fetching(name, Path(path), store, int(num_batches), cache, after_batch)))


if __name__ == "__main__":
    main()
