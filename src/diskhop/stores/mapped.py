"""`mapped`: a memory map with random advice, gathered by many threads, as PyG+ does: the common baseline.

The page cache belongs to the OS: it is outside the budget, and only a control group bounds it. A failed read cannot be
reported, because the kernel ends the process with SIGBUS. A file that is too short is refused when it is opened.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import copy_rows
from diskhop.counters import FetchCounts
from diskhop.io.mapping import map_file
from diskhop.plans import Prediction
from diskhop.protocols import Bytes, NodeIds, Table
from diskhop.stores.costs import BatchCost, Scenario, busy_seconds, predict_epoch
from diskhop.stores.gathering import GatheringStore
from diskhop.stores.kind import StoreKind
from diskhop.stores.misses import least_recently_used
from diskhop.stores.resources import StoreResources
from diskhop.stores.room import divide_for_batches

# A page fault waits for the disk: more threads than cores keep more reads in flight (measured: 4 to 16 times).
_THREADS_PER_CORE = 4
_PAGE_BYTES = 4096


def open_mapped(table: Table, resources: StoreResources) -> GatheringStore:
    """Map the table and gather rows from it."""
    pages = map_file(table.path, table.num_rows * table.row_stride)
    rows = pages.reshape(table.num_rows, table.row_stride)[:, : table.row_bytes]

    def read_into(ids: NodeIds, out: Bytes) -> FetchCounts:
        bytes_copied = copy_rows(rows, ids, out, None, _THREADS_PER_CORE * resources.threads)
        bytes_needed = len(ids) * table.row_bytes
        return FetchCounts(rows_requested=len(ids), bytes_needed=bytes_needed, bytes_copied=bytes_copied)

    return GatheringStore(table, resources, read_into)


def simulate(scenario: Scenario) -> Prediction:
    """Predict an epoch from the page faults of a page cache that evicts the least recently used pages."""
    table, machine, cores = scenario.table, scenario.machine, scenario.cores
    pages = [_pages(ids, table) for ids in scenario.trace.node_ids]
    num_pages = -(-table.num_rows * table.row_stride // _PAGE_BYTES)
    misses = least_recently_used(scenario, pages, num_pages, scenario.page_cache_bytes // _PAGE_BYTES)
    faults = [len(missed) for missed in misses]
    fault_seconds = machine.disk.predict_seconds(_PAGE_BYTES, _THREADS_PER_CORE * machine.threads) + cores.fault_wait
    mean_faults = sum(faults) / len(faults)
    fetching = BatchCost(
        hit_rate=1 - mean_faults / max(1.0, sum(map(len, pages)) / len(pages)),
        reads=mean_faults,
        bytes_read=mean_faults * _PAGE_BYTES,
        io_seconds=mean_faults * fault_seconds,
        cores_seconds=mean_faults * cores.fault + scenario.trace.num_rows * machine.copy_seconds,
    )
    # The first batches find no page in memory, and their waits overlap with nothing.
    cores_seconds = busy_seconds(scenario, fetching)
    arrived = done = scenario.trace.sample_seconds
    for count in faults:
        arrived += count * fault_seconds
        done = max(done, arrived) + cores_seconds
    return replace(predict_epoch(scenario, fetching), epoch_seconds=done)


def _pages(ids: NDArray[Any], table: Table) -> NDArray[np.int64]:
    """Return the pages that rows lie in, ascending. ids: ascending, as in a trace."""
    first = ids.astype(np.int64) * table.row_stride
    last = (first + table.row_bytes - 1) // _PAGE_BYTES
    first //= _PAGE_BYTES
    if int((last - first).max(initial=0)) == 0:
        return _without_repeats(first)
    widths = last - first + 1
    starts = np.repeat(first, widths)
    steps = np.arange(len(starts)) - np.repeat(np.cumsum(widths) - widths, widths)
    return _without_repeats(starts + steps)


def _without_repeats(ascending: NDArray[np.int64]) -> NDArray[np.int64]:
    return ascending[np.flatnonzero(np.diff(ascending, prepend=-1))]


KIND = StoreKind(
    name="mapped", simplicity=6, open=open_mapped, divide=divide_for_batches, simulate=simulate, is_bounded=False
)
