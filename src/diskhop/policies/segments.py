"""Dividing the rows of a packed layout between copies per batch and copies that batches share.

*resident*: rows in memory, which the layout does not contain. *segment*: consecutive batches that share rows. *shared*:
rows stored once per segment, in MinHash order, and read page by page. *packed*: rows stored once for each batch that
needs them, contiguously, and read without any other bytes. Longer segments take less disk space, but a batch needs
fewer rows of each page (DiskGNN, section 5.1).
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

# (rows that each batch of a segment needs, as 0 to num_rows - 1; num_rows) -> storage order of the rows
OrderRows = Callable[[Sequence[NodeIds], int], NodeIds]


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """Length of segments, and rows that all of them have on the disk.

    num_batches: batches of a segment.
    shared_rows: shared rows of all segments.
    packed_rows: rows packed for one batch each.
    """

    num_batches: int
    shared_rows: int
    packed_rows: int

    @property
    def disk_rows(self) -> int:
        """Rows on the disk, shared and packed."""
        return self.shared_rows + self.packed_rows


@dataclass(frozen=True, slots=True)
class SegmentReads:
    """Disk space of a layout, and reads of one pass over its batches.

    disk_rows: rows on the disk.
    bytes_needed: bytes of rows that are not resident.
    bytes_packed, bytes_of_pages: bytes read for packed rows, and for pages of shared rows.
    """

    disk_rows: int
    bytes_needed: int
    bytes_packed: int
    bytes_of_pages: int

    @property
    def amplification(self) -> float:
        """Bytes read per needed byte; 1 if none is needed."""
        if self.bytes_needed == 0:
            return 1.0
        return (self.bytes_packed + self.bytes_of_pages) / self.bytes_needed


def choose_segment_size(trace: AccessTrace, is_resident: NDArray[np.bool_], most_rows: int) -> SegmentSize:
    """Return the shortest segments that take at most most_rows rows on the disk (DiskGNN, Algorithm 2).

    The first segment grows batch by batch until all segments would fit if they were like it. Then they are counted, and
    the search continues if they do not fit. Takes two bytes per row of the table.

    is_resident: bool (rows of the table).

    Raises DiskBudgetError if one segment of all batches does not fit.
    """
    is_stored = is_resident.copy()
    # Element i: distinct rows of the first i batches.
    distinct_rows = [0]
    for num_batches in range(1, len(trace) + 1):
        ids = trace.node_ids(num_batches - 1)
        distinct_rows.append(distinct_rows[-1] + len(ids) - int(np.count_nonzero(is_stored[ids])))
        is_stored[ids] = True
        # The paper scales by batches alone, but with few segments a short last one saves little disk space.
        num_whole, rest = divmod(len(trace), num_batches)
        if num_whole * distinct_rows[num_batches] + distinct_rows[rest] <= most_rows:
            size = count_rows(trace, is_resident, num_batches)
            if size.disk_rows <= most_rows:
                return size
    raise DiskBudgetError(
        f"a packed layout of these {len(trace)} batches takes at least {distinct_rows[-1]} rows on the disk, "
        f"{most_rows} are allowed; use a larger --disk or --cache",
        distinct_rows[-1],
    )


def count_rows(trace: AccessTrace, is_resident: NDArray[np.bool_], num_batches: int) -> SegmentSize:
    """Count the rows on the disk of segments that share each row which several of their batches need.

    Reads each batch once. Takes one byte per row of the table.
    """
    shared_rows = packed_rows = 0
    # 2 means two or more.
    counts = np.zeros(len(is_resident), np.uint8)
    for number in range(len(trace)):
        if number % num_batches == 0:
            counts.fill(0)
        ids = _missing(trace, number, is_resident)
        before = counts[ids]
        counts[ids] = np.minimum(before + 1, 2)
        num_first, num_second = int(np.count_nonzero(before == 0)), int(np.count_nonzero(before == 1))
        shared_rows += num_second
        packed_rows += num_first - num_second
    return SegmentSize(num_batches, shared_rows, packed_rows)


def simulate_segments(
    trace: AccessTrace,
    is_resident: NDArray[np.bool_],
    num_batches: int,
    *,
    row_bytes: int,
    page_bytes: int = 4096,
    most_shared_rows: int | None = None,
    order_rows: OrderRows = minhash_order,
) -> SegmentReads:
    """Return the disk space and reads of a layout with segments of num_batches, the last of which may be shorter.

    Each page with shared rows that a batch needs is read once for it. Reads each batch once. Takes 12 bytes per row of
    the table, and the batches of one segment.

    is_resident: bool (rows of the table).
    most_shared_rows: shared rows of a segment at most, those that most batches need, ties to the lower id; None for all
        rows that several batches need.
    """
    disk_rows = num_accesses = num_packed = num_pages = 0
    for first in range(0, len(trace), num_batches):
        batches = [
            _missing(trace, number, is_resident) for number in range(first, min(first + num_batches, len(trace)))
        ]
        counts = np.zeros(len(is_resident), np.uint32)
        for ids in batches:
            counts[ids] += 1
        shared = np.flatnonzero(counts > 1) if most_shared_rows is None else most_accessed(counts, most_shared_rows)
        places = np.full(len(is_resident), -1, np.int64)
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


def _missing(trace: AccessTrace, number: int, is_resident: NDArray[np.bool_]) -> NodeIds:
    ids = trace.node_ids(number)
    return ids[~is_resident[ids]]


def _count_pages(offsets: NDArray[np.int64], row_bytes: int, page_bytes: int) -> int:
    """Pages with a byte of rows at these distinct offsets."""
    offsets = np.sort(offsets)
    first_pages, last_pages = offsets // page_bytes, (offsets + row_bytes - 1) // page_bytes
    # Rows do not overlap, so two neighbours share at most the last page of one and the first of the next.
    num_common = np.count_nonzero(first_pages[1:] == last_pages[:-1])
    return int((last_pages - first_pages + 1).sum() - num_common)
