"""`mapped`: a memory map with random advice, gathered by many threads (as PyG+ does): the baseline everybody has.

The page cache is the kernel's: it is not in the budget, and only a control group bounds it.
"""

from __future__ import annotations

import mmap
import os

import numpy as np

from diskhop._native import copy_rows
from diskhop.counters import FetchCounts
from diskhop.errors import ReadError
from diskhop.features.resources import ReadingStore, StoreResources
from diskhop.protocols import Bytes, NodeIds, Table

# A page fault waits for the disk: more threads than cores keep more reads in flight (measured: 4 to 16 times).
_THREADS_PER_CORE = 4


def open_mapped(table: Table, resources: StoreResources) -> ReadingStore:
    """Map the table and gather rows from it."""
    num_bytes = table.num_rows * table.row_stride
    try:
        with table.path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < num_bytes:
                raise ReadError(f"{table.path}: file ends before offset {num_bytes}; run 'diskhop verify'")
            pages = mmap.mmap(file.fileno(), num_bytes, prot=mmap.PROT_READ)
    except OSError as error:
        if isinstance(error, ReadError):
            raise
        raise ReadError(f"{table.path}: cannot be mapped: {error.strerror}") from error
    # Without it the kernel reads ahead by megabytes for every row.
    pages.madvise(mmap.MADV_RANDOM)
    rows = np.frombuffer(pages, np.uint8).reshape(table.num_rows, table.row_stride)[:, : table.row_bytes]

    def read_into(ids: NodeIds, out: Bytes) -> FetchCounts:
        copy_rows(rows, ids, out, None, _THREADS_PER_CORE * resources.threads)
        num_needed = len(ids) * table.row_bytes
        return FetchCounts(rows_requested=len(ids), bytes_needed=num_needed, bytes_copied=num_needed)

    return ReadingStore(table, resources, read_into, on_close=lambda: None)
