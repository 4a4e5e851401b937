"""Rows of a table divided among workers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from diskhop._native import BufferPool, Engine
from diskhop.hops.stream.parts import Bands, BandWriter, Rows
from diskhop.nn.reproducible import torch_threads
from diskhop.runtime.blocks import map_in_order

# What all rows before a row cost.
Cost = Callable[[int], float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Share:
    """Rows of a table that one worker writes.

    writer: writer of the worker. start: first row. stop: last row + 1. pool: memory of buffers.
    on_rows: called with the number of rows of each part that is written, by any thread.
    """

    writer: BandWriter
    start: int
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
    """Workers that write rows of bands at the same time, each with a writer and cores of its own.

    count: workers. threads: of each. part_rows: rows of a part. pool: memory of buffers.
    """

    count: int
    threads: int
    part_rows: int
    engine: Engine
    pool: BufferPool

    def open(self, bands: Bands) -> list[BandWriter]:
        """Open a writer for each worker."""
        return [BandWriter(bands, self.part_rows, self.engine, self.pool) for _ in range(self.count)]

    def write(
        self,
        write: WriteRows,
        start: int,
        stop: int,
        writers: Sequence[BandWriter],
        cost: Cost,
        on_rows: Callable[[int], None],
    ) -> None:
        """Write rows start to stop. An error is raised after all workers have ended: their writers are closed then."""
        ranges = shares_of(start, stop, self.part_rows, self.count, cost)
        shares = (
            Share(writer=writer, start=first, stop=last, pool=self.pool, on_rows=on_rows)
            for writer, (first, last) in zip(writers, ranges, strict=False)
        )

        def write_share(share: Share) -> None:
            with torch.no_grad():  # of this thread
                write(share)

        with torch_threads(self.threads):
            for _ in map_in_order(write_share, shares, self.count):
                pass


def shares_of(start: int, stop: int, part_rows: int, count: int, cost: Cost) -> list[tuple[int, int]]:
    """Divide rows start to stop into at most count shares of whole parts that cost about the same."""
    parts = range(start, stop, part_rows)
    before, total = cost(start), cost(stop) - cost(start)
    wanted = (before + total * number / count for number in range(1, count))
    cuts = (min(stop, start + part_rows * bisect_left(parts, each, key=cost)) for each in wanted)
    return [(first, last) for first, last in pairwise([start, *cuts, stop]) if first < last]
