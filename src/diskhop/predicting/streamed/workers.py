"""Parts of a table that workers take one after the other, whichever is free.

In hot order the first rows have most edges. Their sums take the cores' time, the writes of the last rows the disk's, so
parts of both ends are mixed. Bytes do not depend on the order.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import torch

from diskhop._native import BufferPool, Engine
from diskhop.hops.stream.parts import Bands, BandWriter, Rows
from diskhop.hops.tables import TILE_ROWS
from diskhop.nn.reproducible import torch_threads
from diskhop.runtime.blocks import map_in_order

# Parts of the last rows for each of the first ones.
_LAST_PER_FIRST = 3


def mixed_parts(start: int, stop: int, part_rows: int) -> Iterator[int]:
    """Yield the first row of each part of rows start to stop: the first parts and the last ones in turn.

    Parts of fewer than TILE_ROWS rows stay together: their indptr is read at once.
    """
    unit_rows = max(part_rows, TILE_ROWS)
    units = deque(range(start, stop, unit_rows))
    for turn in cycle(range(1 + _LAST_PER_FIRST)):
        if not units:
            return
        unit = units.popleft() if turn == 0 else units.pop()
        yield from range(unit, min(unit + unit_rows, stop), part_rows)


class SharedParts:
    """First rows of parts, each for one worker. Any number of threads may take them."""

    def __init__(self, firsts: Iterable[int]) -> None:
        self._firsts = iter(firsts)
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """Return the first row of the next part; None if no part is left."""
        with self._lock:
            return next(self._firsts, None)

    def stop(self) -> None:
        """Leave no part."""
        with self._lock:
            self._firsts = iter(())


class TakenParts:
    """First rows of the parts of one worker, in order. Each of its readers iterates over them; the first one takes."""

    def __init__(self, shared: SharedParts) -> None:
        self._shared = shared
        self._taken: list[int] = []

    def __iter__(self) -> Iterator[int]:
        number = 0
        while True:
            if number == len(self._taken):
                first = self._shared.take()
                if first is None:
                    return
                self._taken.append(first)
            yield self._taken[number]
            number += 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Share:
    """Rows of a table that one worker writes.

    writer: writer of the worker. firsts: first rows of its parts. stop: last row + 1 of all parts. pool: memory of
        buffers.
    on_rows: called with the number of rows of each part that is written, by any thread.
    """

    writer: BandWriter
    firsts: TakenParts
    stop: int
    pool: BufferPool
    on_rows: Callable[[int], None]

    def rows(self, num_rows: int) -> list[Rows]:
        """Return memory of the next part, see BandWriter."""
        return self.writer.rows(num_rows)

    def write(self, first_row: int, num_rows: int) -> None:
        """Write what the memory of rows() has now."""
        self.writer.write(first_row, num_rows)
        self.on_rows(num_rows)


WriteRows = Callable[[Share], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workers:
    """Workers that write rows of bands at the same time, each with a writer of its own.

    count: workers. threads: of each. part_rows: rows of a part. pool: memory of buffers.
    """

    count: int
    threads: int
    part_rows: int
    engine: Engine
    pool: BufferPool

    def open(self, bands: Bands, *, has_padding: bool = True) -> list[BandWriter]:
        """Open a writer for each worker (see BandWriter)."""
        return [
            BandWriter(bands, self.part_rows, self.engine, self.pool, has_padding=has_padding)
            for _ in range(self.count)
        ]

    def write(
        self, write: WriteRows, start: int, stop: int, writers: Sequence[BandWriter], on_rows: Callable[[int], None]
    ) -> None:
        """Write rows start to stop. An error is raised after all workers have ended: their writers are closed then."""
        parts = SharedParts(mixed_parts(start, stop, self.part_rows))

        def write_share(share: Share) -> None:
            try:
                with torch.no_grad():  # of this thread
                    write(share)
            except BaseException:
                parts.stop()
                raise

        shares = (
            Share(writer=writer, firsts=TakenParts(parts), stop=stop, pool=self.pool, on_rows=on_rows)
            for writer in writers
        )
        with torch_threads(self.threads):
            for _ in map_in_order(write_share, shares, self.count, parts.stop):
                pass
