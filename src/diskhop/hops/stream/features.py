"""Features of a dataset as parts of float32 rows, read ahead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from diskhop._native import BufferPool, Engine, File
from diskhop.dataset.encoding import decode_rows
from diskhop.hops.make.tiles import RowReads, plan_row_reads, rows_buffer_bytes
from diskhop.hops.stream.parts import NUM_SLOTS, Rows
from diskhop.hops.stream.prefetch import prefetched
from diskhop.protocols import Table

# Bytes of a value while it is converted: as read, decoded, and as float32.
_CONVERTING_BYTES = 12


def reading_features_bytes(row_stride: int, dim: int, part_rows: int) -> int:
    """Return the memory of a FeatureReader of rows that lie row_stride bytes apart."""
    return NUM_SLOTS * rows_buffer_bytes(row_stride, part_rows) + part_rows * (row_stride + _CONVERTING_BYTES * dim)


class FeatureReader:
    """Reads parts of a feature table, in order. Takes reading_features_bytes()."""

    def __init__(self, table: Table, dtype: str, dim: int, part_rows: int, engine: Engine) -> None:
        self._table = table
        self._dtype = dtype
        self._dim = dim
        self._part_rows = part_rows
        self._engine = engine
        self._file = File(str(table.path), "read")
        pool = BufferPool(0)
        self._slots = [pool.take(rows_buffer_bytes(table.row_stride, part_rows)) for _ in range(NUM_SLOTS)]

    @property
    def width(self) -> int:
        """Values per row."""
        return self._dim

    def parts(self, firsts: Iterable[int], stop: int) -> Iterator[Rows]:
        """Yield parts, given the first row of each, up to row stop: (part_rows, width).

        A part is valid until the next one is requested.
        """
        reads: dict[int, RowReads] = {}

        def submit(first: int, slot: int) -> int:
            count = min(self._part_rows, stop - first)
            planned = reads[slot] = plan_row_reads(self._table, first, count, self._file.offset_alignment)
            return self._engine.submit_read(
                self._file, planned.offsets, planned.lengths, self._slots[slot], planned.places, planned.required
            )

        for first, slot in prefetched(self._engine, firsts, submit, NUM_SLOTS):
            count = min(self._part_rows, stop - first)
            yield self._decoded(self._slots[slot][reads[slot].skipped_bytes :], count)

    def _decoded(self, content: np.ndarray[tuple[int], np.dtype[np.uint8]], count: int) -> Rows:
        table = self._table
        rows = np.lib.stride_tricks.as_strided(content, (count, table.row_bytes), (table.row_stride, 1))
        # Contiguous and aligned for numbers, unlike rows in a slot.
        if table.row_stride != table.row_bytes or content.ctypes.data % 4:
            rows = rows.copy()
        return decode_rows(rows, self._dtype, self._dim).astype(np.float32, copy=False)
