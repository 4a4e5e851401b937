"""How a packed layout divides the rows of a trace of batches: which lie on the disk once for how many of them.

*held*: rows in memory, none of which lies in the layout. *segment*: batches that follow each other and share rows.
*shared*: rows that lie once in a segment, in MinHash order, and are read a page at a time. *packed*: rows that lie once
for each batch that asks for them, one after another, and are read without a byte too many. The longer segments are,
the less disk they take and the fewer of a page's rows the same batch asks for (DiskGNN, section 5.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import DiskBudgetError
from diskhop.policies.minhash import minhash_order
from diskhop.policies.static import most_accessed
from diskhop.protocols import AccessTrace, NodeIds

# From what a segment's batches ask for, rows as 0 to num_rows - 1, and num_rows to the order that the rows lie in.
OrderRows = Callable[[Sequence[NodeIds], int], NodeIds]


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """Batches of a segment, and the rows of all segments together: shared once in each, packed once for each batch."""

    num_batches: int
    shared_rows: int
    packed_rows: int

    @property
    def disk_rows(self) -> int:
        """Rows of all segments, shared and packed."""
        return self.shared_rows + self.packed_rows


@dataclass(frozen=True, slots=True)
class SegmentReads:
    """What a layout takes on the disk, and what one pass over its batches reads.

    bytes_needed: of rows that are not held. bytes_packed: read of packed rows. bytes_of_pages: read of shared rows.
    """

    disk_rows: int
    bytes_needed: int
    bytes_packed: int
    bytes_of_pages: int

    @property
    def amplification(self) -> float:
        """Bytes read for each that is needed; 1 where none is."""
        if self.bytes_needed == 0:
            return 1.0
        return (self.bytes_packed + self.bytes_of_pages) / self.bytes_needed


def choose_segment_size(trace: AccessTrace, is_held: NDArray[np.bool_], most_rows: int) -> SegmentSize:
    """The shortest segments that take at most most_rows rows on the disk (DiskGNN, Algorithm 2).

    is_held: bool (rows of the table). The first segment is made longer batch by batch until all of them fit, were they
    like it; then they are counted, which happens again for every length at which that turns out to be wrong. Holds two
    bytes a row of the table. Raises DiskBudgetError if not even one segment of all batches fits.
    """
    is_stored = is_held.copy()
    # Element i: rows that the first i batches ask for.
    distinct_rows = [0]
    for num_batches in range(1, len(trace) + 1):
        ids = trace.node_ids(num_batches - 1)
        distinct_rows.append(distinct_rows[-1] + len(ids) - int(np.count_nonzero(is_stored[ids])))
        is_stored[ids] = True
        # The paper scales by batches alone; where segments are few, the last one's shortness saves little disk.
        num_whole, rest = divmod(len(trace), num_batches)
        if num_whole * distinct_rows[num_batches] + distinct_rows[rest] <= most_rows:
            size = count_rows(trace, is_held, num_batches)
            if size.disk_rows <= most_rows:
                return size
    raise DiskBudgetError(
        f"a packed layout of these {len(trace)} batches takes at least {distinct_rows[-1]} rows on the disk, "
        f"{most_rows} are allowed; allow more, or hold more rows in memory",
        distinct_rows[-1],
    )


def count_rows(trace: AccessTrace, is_held: NDArray[np.bool_], num_batches: int) -> SegmentSize:
    """What segments take on the disk that share the rows which more than one of their batches asks for.

    Each batch is asked for once. Holds a byte a row of the table.
    """
    shared_rows = packed_rows = 0
    # 2 stands for more, too.
    counts = np.zeros(len(is_held), np.uint8)
    for number in range(len(trace)):
        if number % num_batches == 0:
            counts.fill(0)
        ids = _not_held(trace, number, is_held)
        before = counts[ids]
        counts[ids] = np.minimum(before + 1, 2)
        num_first, num_second = int(np.count_nonzero(before == 0)), int(np.count_nonzero(before == 1))
        shared_rows += num_second
        packed_rows += num_first - num_second
    return SegmentSize(num_batches, shared_rows, packed_rows)


def simulate_segments(
    trace: AccessTrace,
    is_held: NDArray[np.bool_],
    num_batches: int,
    *,
    row_bytes: int,
    page_bytes: int = 4096,
    most_shared_rows: int | None = None,
    order_rows: OrderRows = minhash_order,
) -> SegmentReads:
    """What a layout with segments of num_batches takes and reads, the last one shorter where they do not come out even.

    is_held: bool (rows of the table). most_shared_rows: a segment shares as many rows, those that most batches ask for,
    ties to the lower id; None: all those that more than one asks for. Of shared rows every page that a batch needs a
    byte of is read once for it. Each batch is asked for once.
    Holds 12 bytes a row of the table, and the batches of a segment.
    """
    disk_rows = num_accesses = num_packed = num_pages = 0
    for first in range(0, len(trace), num_batches):
        batches = [_not_held(trace, number, is_held) for number in range(first, min(first + num_batches, len(trace)))]
        counts = np.zeros(len(is_held), np.uint32)
        for ids in batches:
            counts[ids] += 1
        shared = np.flatnonzero(counts > 1) if most_shared_rows is None else most_accessed(counts, most_shared_rows)
        places = np.full(len(is_held), -1, np.int64)
        places[shared] = np.arange(len(shared))
        shared_batches = [of_batch[of_batch >= 0] for of_batch in (places[ids] for ids in batches)]
        order = order_rows(shared_batches, len(shared))
        offsets = np.empty(len(shared), np.int64)
        offsets[order] = np.arange(0, len(shared) * row_bytes, row_bytes)
        num_accesses += sum(map(len, batches))
        num_packed += sum(map(len, batches)) - sum(map(len, shared_batches))
        num_pages += sum(_count_pages(offsets[rows], row_bytes, page_bytes) for rows in shared_batches)
        disk_rows += len(shared)
    return SegmentReads(
        disk_rows=disk_rows + num_packed,
        bytes_needed=num_accesses * row_bytes,
        bytes_packed=num_packed * row_bytes,
        bytes_of_pages=num_pages * page_bytes,
    )


def _not_held(trace: AccessTrace, number: int, is_held: NDArray[np.bool_]) -> NodeIds:
    ids = trace.node_ids(number)
    return ids[~is_held[ids]]


def _count_pages(offsets: NDArray[np.int64], row_bytes: int, page_bytes: int) -> int:
    """Pages with a byte of rows at these distinct offsets."""
    offsets = np.sort(offsets)
    first_pages, last_pages = offsets // page_bytes, (offsets + row_bytes - 1) // page_bytes
    # Rows do not overlap, so that no more than the last page of one is the first of the next.
    num_common = np.count_nonzero(first_pages[1:] == last_pages[:-1])
    return int((last_pages - first_pages + 1).sum() - num_common)
