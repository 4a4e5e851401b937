"""Rows of a table divided among workers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from diskhop._native import BufferPool, Engine
from diskhop.hops.stream.parts import Bands, BandWriter
from diskhop.nn.reproducible import torch_threads
from diskhop.runtime.blocks import map_in_order

# (writer, first row, last row + 1, pool): writes rows of a table, with buffers of a pool.
WriteRows = Callable[[BandWriter, int, int, BufferPool], None]
# What all rows before a row cost.
Cost = Callable[[int], float]


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

    def write(self, write: WriteRows, start: int, stop: int, writers: Sequence[BandWriter], cost: Cost) -> None:
        """Write rows start to stop. An error is raised after all workers have ended: their writers are closed then."""
        shares = shares_of(start, stop, self.part_rows, self.count, cost)

        def write_rows(share: tuple[BandWriter, tuple[int, int]]) -> None:
            writer, (first, last) = share
            with torch.no_grad():  # of this thread
                write(writer, first, last, self.pool)

        with torch_threads(self.threads):
            for _ in map_in_order(write_rows, zip(writers, shares, strict=False), self.count):
                pass


def shares_of(start: int, stop: int, part_rows: int, count: int, cost: Cost) -> list[tuple[int, int]]:
    """Divide rows start to stop into at most count shares of whole parts that cost about the same."""
    parts = range(start, stop, part_rows)
    before, total = cost(start), cost(stop) - cost(start)
    wanted = (before + total * number / count for number in range(1, count))
    cuts = (min(stop, start + part_rows * bisect_left(parts, each, key=cost)) for each in wanted)
    return [(first, last) for first, last in pairwise([start, *cuts, stop]) if first < last]
