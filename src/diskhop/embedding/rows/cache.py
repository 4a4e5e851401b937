"""Pages of learned rows in memory, written back when others need their place.

A page that was used longest ago leaves first. What is read and written does not depend on the number of cached pages:
every access goes through the cache, one after the other, so that a row is always seen as it was updated last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File
from diskhop.embedding.rows.layout import RowLayout
from diskhop.io.atomic import destination_errors
from diskhop.protocols import NodeIds

_NO_SLOT = -1


class PageCache:
    """The rows of a file, which exists at its full length. Not thread-safe.

    num_cached: pages in memory at most.
    pages_read, pages_written: since it was opened.
    """

    def __init__(self, path: Path, layout: RowLayout, engine: Engine, num_cached: int) -> None:
        self._path = path
        self._layout = layout
        self._engine = engine
        with destination_errors(path):
            self._to_write = File(str(path), "write")
        self._to_read = File(str(path), "read")
        self._buffer = BufferPool(0).take(num_cached * layout.page_bytes)
        record_bytes = 4 * layout.record_floats
        self._records: NDArray[np.float32] = as_strided(
            self._buffer.view(np.float32),
            (num_cached, layout.rows_per_page, layout.record_floats),
            (layout.page_bytes, record_bytes, 4),
        )
        self._slot_of = np.full(layout.num_pages, _NO_SLOT, np.int32)
        self._page_of = np.full(num_cached, -1, np.int64)
        self._last_use = np.zeros(num_cached, np.int64)
        self._is_changed = np.zeros(num_cached, np.bool_)
        self._num_filled = 0
        self._clock = 0
        self.pages_read = self.pages_written = 0

    def gather(self, ids: NodeIds) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return copies of rows and of their squares, (ids, dim) and (ids, 1). Raises ReadError or WriteError."""
        values = np.empty((len(ids), self._layout.dim), np.float32)
        squares = np.empty((len(ids), 1), np.float32)
        for places, slots, within in self._visit(ids):
            records = self._records[slots, within]
            values[places], squares[places] = records[:, :-1], records[:, -1:]
        return values, squares

    def scatter(self, ids: NodeIds, values: NDArray[np.float32], squares: NDArray[np.float32]) -> None:
        """Replace rows, which are distinct, and their squares. Raises ReadError or WriteError."""
        for places, slots, within in self._visit(ids):
            self._records[slots, within, :-1] = values[places]
            self._records[slots, within, -1:] = squares[places]
            self._is_changed[slots] = True

    def flush(self) -> None:
        """Write all changed pages. Raises WriteError or DestinationError."""
        self._write(np.flatnonzero(self._is_changed))

    def forget(self) -> None:
        """Forget all pages, changed ones too: the file has another content now."""
        self._slot_of.fill(_NO_SLOT)
        self._is_changed.fill(False)
        self._num_filled = 0

    def close(self) -> None:
        """Close the file."""
        self.__dict__.pop("_to_write", None)
        self.__dict__.pop("_to_read", None)

    def _visit(self, ids: NodeIds) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]]:
        """Yield places among the ids, with the slot of the page of each and its row there, as many as fit at once."""
        pages = ids // self._layout.rows_per_page
        order = np.argsort(pages, kind="stable")
        distinct, firsts = np.unique(pages[order], return_index=True)
        bounds = np.append(firsts, len(ids))
        for start in range(0, len(distinct), len(self._page_of)):
            stop = min(start + len(self._page_of), len(distinct))
            self._load(distinct[start:stop])
            places = order[bounds[start] : bounds[stop]]
            yield places, self._slot_of[pages[places]], ids[places] % self._layout.rows_per_page

    def _load(self, pages: NDArray[np.int64]) -> None:
        """Bring distinct pages into memory, no more than the cache has slots."""
        self._clock += 1
        slots = self._slot_of[pages]
        is_cached = slots != _NO_SLOT
        self._last_use[slots[is_cached]] = self._clock
        missing = pages[~is_cached]
        if len(missing) == 0:
            return
        taken = self._free_slots(len(missing))
        self._transfer(self._engine.submit_read, self._to_read, missing, taken)
        self.pages_read += len(missing)
        self._slot_of[missing], self._page_of[taken], self._last_use[taken] = taken, missing, self._clock

    def _free_slots(self, count: int) -> NDArray[np.int64]:
        """Return slots for other pages: unused ones, then those that were used longest ago."""
        fresh = np.arange(self._num_filled, min(self._num_filled + count, len(self._page_of)), dtype=np.int64)
        num_evicted = count - len(fresh)
        if num_evicted == 0:
            self._num_filled += count
            return fresh
        # Pages of this access have the newest time, so they stay.
        oldest = np.argpartition(self._last_use[: self._num_filled], num_evicted - 1)[:num_evicted]
        self._write(oldest[self._is_changed[oldest]])
        self._slot_of[self._page_of[oldest]] = _NO_SLOT
        self._num_filled += len(fresh)
        return np.concatenate([fresh, oldest])

    def _write(self, slots: NDArray[np.int64]) -> None:
        if len(slots) == 0:
            return
        with destination_errors(self._path):
            self._transfer(self._engine.submit_write, self._to_write, self._page_of[slots], slots)
        self._is_changed[slots] = False
        self.pages_written += len(slots)

    def _transfer(
        self, submit: Callable[..., int], file: File, pages: NDArray[np.int64], slots: NDArray[np.int64]
    ) -> None:
        num_bytes = np.uint64(self._layout.page_bytes)
        lengths = np.full(len(pages), num_bytes, np.uint64)
        places = slots.astype(np.uint64) * num_bytes
        self._engine.wait(submit(file, pages.astype(np.uint64) * num_bytes, lengths, self._buffer, places))
