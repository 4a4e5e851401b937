"""A packed batch between submit and release."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from diskhop._native import ScanTicket
from diskhop.counters import FetchCounts
from diskhop.stores.packed.chunk import Body, Chunk
from diskhop.stores.packed.pack_file import PackFile


@dataclass(slots=True, eq=False)
class PackedFetch:
    """A ticket of the store `packed`.

    source, chunk: file and position of the batch.
    head, head_ticket: memory of head and body, and their read.
    rows_checksum: expected checksum of the packed rows; 0 in a temporary file.
    first: first row of the buffer that the batch has; None while it waits for space.
    base: row of the buffer from which the batch's own rows are counted.
    began: when reading the rows began.
    rows_ticket: read of the packed rows.
    has_arrived: whether the packed rows are in the buffer.
    shared: read of the shared rows.
    body: slots and shared ids, between arrival and collect().
    error: why the batch cannot be collected.
    is_released: release() was called.
    counts: disk traffic and rows of the batch.
    """

    source: PackFile
    chunk: Chunk
    head: NDArray[np.uint8]
    head_ticket: int | None
    rows_checksum: int = 0
    first: int | None = None
    base: int = 0
    began: float = 0.0
    rows_ticket: int | None = None
    has_arrived: bool = False
    shared: ScanTicket | None = None
    body: Body | None = None
    error: BaseException | None = None
    is_released: bool = False
    counts: FetchCounts = field(default_factory=FetchCounts)
