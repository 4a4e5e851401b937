"""Merging reads of rows: few and large requests, aligned as the disk needs.

*gap*: bytes between the blocks of two wanted rows. *break-even gap*: a gap that takes as long to read as one more
request; reading across a smaller gap is cheaper than two reads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskhop._native import plan_reads as native_plan_reads
from diskhop.protocols import NodeIds


@dataclass(frozen=True, slots=True, eq=False)
class ReadPlan:
    """Reads in ascending order; all arrays are uint64 (reads).

    Read r covers num_bytes[r] bytes at offsets[r], of which required_bytes[r] must exist (the last block may reach
    past the end of the table), and holds the wanted rows first_wanted[r] to first_wanted[r] + num_wanted[r].
    """

    offsets: NDArray[np.uint64]
    num_bytes: NDArray[np.uint64]
    required_bytes: NDArray[np.uint64]
    first_wanted: NDArray[np.uint64]
    num_wanted: NDArray[np.uint64]

    @property
    def num_reads(self) -> int:
        """Requests to the disk."""
        return len(self.offsets)

    @property
    def total_bytes(self) -> int:
        """Bytes requested from the disk."""
        return int(self.num_bytes.sum())


def plan_reads(
    sorted_ids: NodeIds,
    *,
    num_rows: int,
    row_bytes: int,
    row_stride: int,
    max_gap_bytes: int,
    alignment: int,
    max_read_bytes: int,
) -> ReadPlan:
    """Plan the reads of rows whose ids ascend strictly; row i is row_bytes bytes at offset i * row_stride.

    Rows that share a block of `alignment` bytes, or whose blocks lie at most max_gap_bytes apart, share a read of at
    most max_read_bytes (a row alone may exceed it). max_gap_bytes < 0 gives every row a read of its own.
    Raises ValueError or IndexError for ids that do not ascend or lie outside the table.
    """
    table = native_plan_reads(sorted_ids, num_rows, row_bytes, row_stride, max_gap_bytes, alignment, max_read_bytes)
    return ReadPlan(*table.T)
