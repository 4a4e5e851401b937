"""`mapped`: a memory map with random advice, gathered by many threads (as PyG+ does): the baseline everybody has.

The page cache is the kernel's: it is not in the budget, and only a control group bounds it. A read that fails here
cannot be reported: the kernel ends the process with SIGBUS. A file that is too short is refused when it is opened.
"""

from __future__ import annotations

from diskhop._native import copy_rows
from diskhop.counters import FetchCounts
from diskhop.io.mapping import map_file
from diskhop.protocols import Bytes, NodeIds, Table
from diskhop.stores.gathering import GatheringStore
from diskhop.stores.resources import StoreResources

# A page fault waits for the disk: more threads than cores keep more reads in flight (measured: 4 to 16 times).
THREADS_PER_CORE = 4


def open_mapped(table: Table, resources: StoreResources) -> GatheringStore:
    """Map the table and gather rows from it."""
    pages = map_file(table.path, table.num_rows * table.row_stride)
    rows = pages.reshape(table.num_rows, table.row_stride)[:, : table.row_bytes]

    def read_into(ids: NodeIds, out: Bytes) -> FetchCounts:
        bytes_copied = copy_rows(rows, ids, out, None, THREADS_PER_CORE * resources.threads)
        bytes_needed = len(ids) * table.row_bytes
        return FetchCounts(rows_requested=len(ids), bytes_needed=bytes_needed, bytes_copied=bytes_copied)

    return GatheringStore(table, resources, read_into)
