"""The systems that the Ginex paper compares (sections 5.1 and 5.3), as plans of diskhop, and a run by one.

A *case* is a system with the numbers that its plan depends on. Its caches get the memory that is left, a *share* of
that for rows and the rest for lists of neighbours. PyG+ has maps of the rows and of `indices`, and `indptr` in memory;
it disables read-ahead, as section 5.1 says, and *PyG+, read-ahead* does not: maps as NumPy makes them.
benchmarks/paper_ginex.py runs each in its own process: `ginex_systems.py DATASET RUN`, with case and plan as JSON; it
prints the costs of the pass as JSON.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import numpy as np

from baseline_stores import PAGE_BYTES, PAGES_IN_FLIGHT_BYTES, reading_pages
from diskhop._native import keyed_permutation
from diskhop.budget import Budget
from diskhop.counters import FetchCounts
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.disk.model import DiskModel
from diskhop.errors import BudgetError
from diskhop.generating import GraphConfig
from diskhop.io import mapping
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.planning.batch_sizes import measure_batches
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.plans import SampledPlan
from diskhop.protocols import AccessTrace, NodeIds, NodeRows, Purpose, SampledBatch, Table, neighbor_spec
from diskhop.sampling import topology, whole_files
from diskhop.sampling.cached_topology import cached_topology_bytes
from diskhop.sampling.seeds import SeedSet, count_batches
from diskhop.sampling.topology import topology_bytes
from diskhop.stores.belady import BeladyStore, belady_reserves
from diskhop.stores.resources import StoreResources
from diskhop.stores.room import SMALLEST_STAGING_BYTES, STAGING_BYTES
from diskhop.stores.static import open_static
from diskhop.stores.stores import STORES
from diskhop.system.memory import default_threads
from diskhop.system.transfers import transfers
from fetching import open_plain_map, resident_bytes
from papers import narrow, read_plan, without_features
from turns import peak_rss_bytes
from workloads import SEED

# Edges per node of Friendster and Twitter (Table 2: 59 and 67): caches hold about half of the lists, as the
# paper's do. The widest table of Figure 17, of which narrower ones are a part.
NUM_NODES, EDGES_PER_NODE, WIDEST_DIM = 1_600_000, 64, 768
GRAPH = GraphConfig(
    kind="kronecker",
    num_nodes=NUM_NODES,
    num_edges=NUM_NODES * EDGES_PER_NODE,
    dim=WIDEST_DIM,
    num_classes=47,
    train_fraction=0.1,
    order="input",
    seed=1,
)
FANOUTS = (10, 10, 10)
# Batches before the measured ones: the first superbatch, which fills the cache, and what fills PyG+'s page cache.
WARM_UP = 16
# The paper's threads for I/O are more than twice its cores (section 5.1). A fault waits for the disk: four sampling
# threads per core and 32 gathering ones keep it busier than fewer.
_MAPPED_THREADS_PER_CORE = 8
# With read-ahead each fault brings 32 pages; as many threads fill a small control group with pages that are thrown out
# before they are used, and the run does not end.
_READ_AHEAD_THREADS_PER_CORE = 1
# Not used by caches: room for rounding up to whole huge pages.
_ROUNDING_BYTES = 4 << 20

STORE_OF = {
    "in memory": "memory",
    "PyG+": "mapped",
    "PyG+, read-ahead": "mapped",
    "Ali+PG": "static",
    "Ginex-PG": "belady",
    "Ginex": "belady",
    "Ginex, a page per row": "belady",
}
# Systems that are planned with the store above, and read through one of their own: see register_store().
_WITH_OWN_STORE = ("PyG+, read-ahead", "Ginex-PG", "Ginex, a page per row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One system at one point of a figure.

    share: share of the caches' bytes for rows.
    superbatch: largest number of batches sampled ahead; 0: limited by the disk only.
    step_seconds: seconds that the consumer waits with each batch, which stand for a step of training.
    reads_rows_alone: True to read each row separately, as the paper's systems do; else close rows are read together.
    only: one of the stages alone, for PyG+: 'sample' without rows, or 'gather' with all lists in memory, which are then
        not part of memory_bytes; '' for both.
    """

    system: str
    dim: int
    batch_size: int
    memory_bytes: int
    num_batches: int
    share: float = 0.0
    superbatch: int = 0
    step_seconds: float = 0.0
    reads_rows_alone: bool = False
    only: Literal["", "sample", "gather"] = ""


def plan_case(dataset: Dataset, case: Case, device: DiskModel) -> SampledPlan:
    """Plan a case. Raises BudgetError if its memory has no room for its caches."""
    kind = STORES[STORE_OF[case.system]]
    wanted = workload_of(dataset, case, STORE_OF[case.system])
    if "cache" in kind.uses:
        wanted = replace(wanted, cache_bytes=_feature_cache_bytes(dataset, case, wanted))
    plan = choose_plan(dataset, wanted, Budget(case.memory_bytes), device)
    if is_pyg(case.system):
        reserved = {name: num_bytes for name, num_bytes in plan.reserved.items() if name != "topology"}
        plan = replace(plan, topology="mapped", topology_cache_bytes=0, reserved=reserved)
        if case.only == "gather":
            plan = replace(plan, topology="memory")
    if case.system in _WITH_OWN_STORE:
        # The plan and memory of the other: only the choice of cached rows differs, or how rows are read.
        plan = replace(plan, store=case.system)
    if case.superbatch:
        plan = replace(plan, share=replace(plan.share, superbatch=min(case.superbatch, plan.share.superbatch)))
    return replace(plan, max_gap_bytes=0) if case.reads_rows_alone else plan


def is_pyg(system: str) -> bool:
    """Return whether the system maps its files as PyG+ does."""
    return system.startswith("PyG+")


def beyond_memory_bytes(system: str) -> int:
    """Compute the bytes that a system of ours takes beyond its plan, only because it stands for another."""
    return PAGES_IN_FLIGHT_BYTES if system == "Ginex, a page per row" else 0


def register_store(system: str) -> None:
    """Add a system's own store, if it has one, to the registry of this process."""
    if system == "PyG+, read-ahead":
        STORES[system] = replace(STORES["mapped"], name=system, open=open_plain_map)
    elif system == "Ginex-PG":
        STORES[system] = replace(STORES["static"], name=system, open=SampledAhead, looks_ahead=True)
    elif system == "Ginex, a page per row":
        STORES[system] = reading_pages(STORES["belady"], system)


@contextmanager
def lists_mapped_as_by(system: str) -> Iterator[None]:
    """Open mapped lists as PyG+ has them: indptr in memory, indices mapped, with read-ahead or without."""
    open_indptr = topology.open_indptr
    map_file = _map_plainly if system == "PyG+, read-ahead" else mapping.map_file
    with (
        patch.object(topology, "open_indptr", lambda files, _mode, *more: open_indptr(files, "memory", *more)),
        patch.object(whole_files, "map_file", map_file),
    ):
        yield


def _map_plainly(path: Path, num_bytes: int) -> Any:
    return np.memmap(path, np.uint8, "r", shape=(num_bytes,))


def caches_bytes(dataset: Dataset, case: Case) -> int:
    """Compute the bytes left for both caches: memory less the smallest budget, and less that for reading lists."""
    wanted = workload_of(dataset, case, STORE_OF[case.system])
    if "cache" in STORES[STORE_OF[case.system]].uses:
        wanted = replace(wanted, cache_bytes=dataset.feature_dim * 4)
    try:
        choose_plan(dataset, wanted, Budget(1))
    except BudgetError as error:
        smallest_bytes = error.smallest_bytes or 0
    reading_bytes = measure_batches(dataset, wanted.seed_sets, wanted.seed, case.memory_bytes).hop_read_bytes
    empty_bytes = cached_topology_bytes(dataset.topology, 0)
    # The planner prefers wide staging to lists.
    staging_bytes = STAGING_BYTES - SMALLEST_STAGING_BYTES
    return case.memory_bytes - smallest_bytes - reading_bytes - empty_bytes - staging_bytes - _ROUNDING_BYTES


def _feature_cache_bytes(dataset: Dataset, case: Case, wanted: Workload) -> int:
    """Compute the bytes of cached rows: the share, less that of its id map; at least one row."""
    table = dataset.feature_table()
    assert table is not None
    one, all_rows = (sum(belady_reserves(table, rows, 1).values()) for rows in (1, table.num_rows))
    bytes_per_row = math.ceil((all_rows - one) / (table.num_rows - 1))
    num_rows = int(case.share * max(caches_bytes(dataset, case), 0)) // bytes_per_row
    return max(1, min(num_rows, table.num_rows)) * table.row_bytes


def workload_of(dataset: Dataset, case: Case, store: str) -> Workload:
    """Return the workload of the case's first epoch, through a store."""
    train_ids = dataset.split_rows("train")
    assert train_ids is not None
    seed_set = SeedSet(
        purpose=Purpose.TRAIN,
        seeds=shuffled(train_ids),
        batch_size=case.batch_size,
        sampler=neighbor_spec(FANOUTS),
        is_shuffled=True,
    )
    threads = default_threads()
    if is_pyg(case.system):
        threads *= _READ_AHEAD_THREADS_PER_CORE if case.system == "PyG+, read-ahead" else _MAPPED_THREADS_PER_CORE
    return Workload(
        seed_sets=(seed_set,),
        seed=SEED,
        store=store,
        threads=threads,
        also_held={"seeds": 2 * train_ids.nbytes},
    )


def run_case(path: Path, case: Case, plan: SampledPlan) -> dict[str, Any]:
    """Run the case's batches by its plan, without a model: means per batch after the warm-up, and peaks."""
    dataset = narrow(open_dataset(path), case.dim)
    if case.only == "sample":
        dataset = without_features(dataset)
    register_store(case.system)
    train_ids = dataset.split_rows("train")
    assert train_ids is not None
    lists_bytes = topology_bytes(dataset.topology, "memory") if case.only == "gather" else 0
    budget = Budget(plan.memory_bytes + lists_bytes)
    before_bytes = resident_bytes()
    opened = time.perf_counter()
    with (
        lists_mapped_as_by(case.system),
        budget.reserve("seeds", 2 * train_ids.nbytes),
        open_pipeline(dataset, plan, budget) as pipeline,
    ):
        clock = StageClock(pipeline.store)
        if pipeline.store is not None:
            pipeline.store = clock
        opening_seconds = time.perf_counter() - opened
        counts, sample_seconds, num_pages = FetchCounts(), 0.0, 0
        wanted = Pass(
            seeds=shuffled(train_ids),
            numbers=range(count_batches(len(train_ids), case.batch_size, case.num_batches)),
            batch_size=case.batch_size,
            sampler=neighbor_spec(FANOUTS),
            seed=SEED,
            purpose=Purpose.TRAIN,
            epoch=0,
        )
        with pipeline.run(wanted) as batches:
            # Not by enumerate, which would keep a batch while the next is fetched.
            for batch in batches:
                if batch.sampled.number < WARM_UP:
                    began, read_before_bytes = time.perf_counter(), transfers().bytes_read
                else:
                    counts.add(batch.counts)
                    sample_seconds += batch.sample_seconds
                    num_pages += _count_pages(batch.sampled.row_ids, case) if is_pyg(case.system) else 0
                time.sleep(case.step_seconds)
                del batch  # As in training: a batch kept is one more than reserved.
            seconds = time.perf_counter() - began
            read_bytes = transfers().bytes_read - read_before_bytes
    sums = {
        "seconds": seconds,
        "sample_seconds": sample_seconds,
        "switch_seconds": clock.switch_seconds,
        "reads": counts.reads,
        "store_bytes": counts.bytes_read,
        "kernel_bytes": read_bytes,
        "needed_bytes": counts.bytes_needed,
        "rows": counts.rows_requested,
        "hits": counts.rows_hit,
        "pages": num_pages,
    }
    peak_bytes = peak_rss_bytes()
    return {
        **{name: total / (case.num_batches - WARM_UP) for name, total in sums.items()},
        "opening_seconds": opening_seconds,
        "superbatches": clock.lengths,
        "peak_rss_bytes": peak_bytes,
        "overhead_bytes": max(before_bytes, peak_bytes - budget.peak_bytes),
    }


def _count_pages(ids: NodeIds, case: Case) -> int:
    """Count the pages that a batch's rows lie in; rows of more than one page lie in as many as they have bytes for."""
    row_bytes = 4 * case.dim
    return len(np.unique(ids * row_bytes // PAGE_BYTES)) * max(1, row_bytes // PAGE_BYTES)


def shuffled(train_ids: NodeRows) -> NodeRows:
    return NodeRows(train_ids[keyed_permutation(len(train_ids), SEED, int(Purpose.TRAIN), 0)])


class SampledAhead:
    """`static` behind Ginex's superbatches (Ginex-PG): it ignores batches sampled ahead, and keeps its cached rows."""

    growth = BeladyStore.growth

    def __init__(self, table: Table, resources: StoreResources) -> None:
        self.table = table
        self._store = open_static(table, resources)

    def start_pass(self) -> None:
        pass

    def make_room(self, batch: SampledBatch) -> None:
        pass

    def free_disk(self) -> None:
        pass

    def look_ahead(self, trace: AccessTrace, keep_on: Callable[[], None]) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class StageClock:
    """A store that records the costs of superbatches.

    lengths: number of batches in each superbatch.
    switch_seconds: seconds of collecting the first batch of each, before which the cache is filled; without warm-up.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self._num_collected = 0
        self._seams = {0}
        self.lengths: list[int] = []
        self.switch_seconds = 0.0

    def look_ahead(self, trace: AccessTrace, keep_on: Callable[[], None]) -> None:
        self._store.look_ahead(trace, keep_on)
        self.lengths.append(len(trace))
        self._seams.add(sum(self.lengths))

    def collect(self, ticket: Any) -> Any:
        number = self._num_collected
        self._num_collected += 1
        started = time.perf_counter()
        rows = self._store.collect(ticket)
        if number >= WARM_UP and number in self._seams:
            self.switch_seconds += time.perf_counter() - started
        return rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def main() -> None:
    path, run = sys.argv[1:]
    document = json.loads(run)
    print(json.dumps(run_case(Path(path), Case(**document["case"]), read_plan(document["plan"]))))


if __name__ == "__main__":
    main()
