"""HopLoader: mini-batches of rows of hop tables, from memory or the disk. No sampling: a batch is a few large reads.

loader = diskhop.HopLoader("papers/derived/propagated-0123456789abcdef", dataset.split("train"), memory="2GB")
for batch in loader:
    out = model(batch.x)  # (tables, batch, dim)
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine
from diskhop.budget import Budget, parse_bytes
from diskhop.config.options import check_arguments, require
from diskhop.config.train import HopConfig
from diskhop.counters import FetchCounts
from diskhop.disk.model import DiskModel
from diskhop.disk.probe import remembered_model
from diskhop.errors import ConfigError
from diskhop.hops.read.order import RowOrder, Shuffle, order_bytes, row_order
from diskhop.hops.read.placement import Place, Placement, loader_bytes, place_tables
from diskhop.hops.read.rows import BatchBuffer, DiskRows, MemoryRows, RowSource, Ticket
from diskhop.hops.tables import HopTables, open_hop_tables
from diskhop.io.engine import open_engine
from diskhop.io.locks import shared_directory
from diskhop.protocols import NodeIds
from diskhop.system.memory import default_memory_bytes, default_threads

DEFAULT_BATCH_SIZE = 8000
_TORCH_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class HopBatch:
    """Rows of the loader's tables, in memory that the next batch is read into: done with when that is asked for.

    number: in its pass. x: (tables, batch, dim), in the tables' dtype. nodes: int64 ids (batch) of the dataset, as it
    numbers them. rows: int64 (batch), of the tables. counts: of bringing it. stall_seconds: that it was waited for.
    """

    number: int
    x: torch.Tensor
    nodes: NodeIds
    rows: Rows
    counts: FetchCounts
    stall_seconds: float


class HopLoader:
    """Mini-batches of rows of hop tables.

    tables: HopTables or their folder. nodes: ids, as the dataset numbers them, each once; None: all that have rows.
    which: of `tables.files`, by place, -1 for the last; None: all. shuffle: 'rows' (SGD-RR), 'chunks' of chunk_rows
    rows that lie together (SGD-CR; default: the batch size) or 'none'; default: by place. place: 'memory', where the
    tables are loaded whole, or 'disk'; default: memory, if they fit. memory: a Budget, bytes or a size such as '2GB';
    default: half of what is free. num_buffers: 2, of which one is read into while the other is used; 1 for none ahead.
    threads: that copy rows; default: half of the cores. seed: of shuffling.

    The same seed gives the same batches, bit for bit, from memory and disk. Every pass over the loader is one epoch
    more; run() passes over other rows. Raises ConfigError for what cannot be, BudgetError with the smallest memory that
    would do, and as open_hop_tables().
    """

    def __init__(
        self,
        tables: HopTables | Path | str,
        nodes: NodeIds | None = None,
        *,
        batch_size: int = DEFAULT_BATCH_SIZE,
        shuffle: Shuffle | None = None,
        chunk_rows: int | None = None,
        which: Sequence[int] | None = None,
        place: Place | None = None,
        memory: Budget | int | str | None = None,
        num_buffers: int = 2,
        engine: Engine | str = "auto",
        threads: int | None = None,
        seed: int = 0,
    ) -> None:
        check_arguments(
            "HopLoader", HopConfig, batch_size=batch_size, chunk_rows=chunk_rows, threads=threads, seed=seed
        )
        require(num_buffers >= 1, "num_buffers", "at least 1", num_buffers, "for example num_buffers=2")
        self.tables = tables if isinstance(tables, HopTables) else open_hop_tables(Path(tables))
        self.which = _resolve_tables(self.tables, which)
        self.batch_size = batch_size
        self.chunk_rows = batch_size if chunk_rows is None else chunk_rows
        self.budget = memory if isinstance(memory, Budget) else Budget(_memory_bytes(memory))
        self._seed = seed
        self._epoch = 0
        self._current: HopBatches | None = None
        shape = self.tables.shape
        in_memory, on_disk = (
            loader_bytes(shape, len(self.which), batch_size, place, num_buffers) for place in ("memory", "disk")
        )
        num_rows = self.tables.num_rows if nodes is None else len(nodes)
        row_bytes = 8 * num_rows
        self.placement: Placement = place_tables(
            num_bytes=sum(in_memory.values()) + row_bytes + order_bytes(num_rows, shuffle or "rows", self.chunk_rows),
            memory_bytes=self.budget.available_bytes,
            place=place,
            shuffle=shuffle,
        )
        if self.placement.place not in ("memory", "disk"):
            raise ConfigError(f"a loader cannot have its tables in '{self.placement.place}'; choose memory or disk")
        held = in_memory if self.placement.place == "memory" else on_disk
        order = order_bytes(num_rows, self.placement.shuffle, self.chunk_rows)
        self.budget.require({**held, "hop rows": row_bytes, "row order": order})
        with ExitStack() as opened:
            opened.enter_context(shared_directory(self.tables.path))
            for name, num_bytes in {**held, "hop rows": row_bytes}.items():
                opened.enter_context(self.budget.reserve(name, num_bytes))
            self.rows = np.arange(num_rows) if nodes is None else self.rows_of(nodes)
            pool = BufferPool(0)
            opened_engine = engine if isinstance(engine, Engine) else open_engine(engine).engine
            num_threads = threads or max(1, default_threads() // 2)
            self._source: RowSource | None
            if self.placement.place == "memory":
                self._source = MemoryRows(self.tables, self.which, opened_engine, pool, num_threads=num_threads)
            else:
                device: DiskModel = remembered_model(self.tables.path, opened_engine.name)
                self._source = DiskRows(
                    self.tables,
                    self.which,
                    opened_engine,
                    pool,
                    max_gap_bytes=device.break_even_gap_bytes,
                    num_threads=num_threads,
                )
            batch_rows = min(batch_size, self.tables.num_rows)
            self._buffers = [BatchBuffer(pool, len(self.which), batch_rows, shape) for _ in range(num_buffers)]
            self._exit = opened.pop_all()

    def __len__(self) -> int:
        """Batches of an epoch."""
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[HopBatch]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        with self.run(epoch=epoch) as batches:
            yield from batches

    def __repr__(self) -> str:
        return f"HopLoader({len(self.rows)} rows of {len(self.which)} tables in {self.placement.place})"

    def rows_of(self, nodes: NodeIds) -> Rows:
        """The rows of nodes, int64, ascending: what run() takes. Raises ConfigError for one without, or named twice."""
        rows = np.sort(self.tables.row_of(np.asarray(nodes, np.int64)))
        twice = np.flatnonzero(np.diff(rows) == 0)
        if len(twice):
            row = rows[twice[0]]
            node = row if self.tables.rows is None else self.tables.rows[row]
            raise ConfigError(f"node {node} is named twice; a pass has each once")
        return rows

    def run(self, rows: Rows | None = None, *, epoch: int = 0, shuffle: Shuffle | None = None) -> HopBatches:
        """A pass: over rows of rows_of(), None for the loader's own; shuffle as the loader's, unless given.

        To be entered as a context; a pass that is still open ends.
        """
        if self._source is None:
            raise ConfigError("this HopLoader is closed: make a new one")
        if self._current is not None:
            self._current.close()
        rows = self.rows if rows is None else rows
        shuffle = self.placement.shuffle if shuffle is None else shuffle
        with ExitStack() as held:
            held.enter_context(self.budget.reserve("row order", order_bytes(len(rows), shuffle, self.chunk_rows)))
            order = row_order(len(rows), shuffle, chunk_rows=self.chunk_rows, seed=self._seed, epoch=epoch)
            self._current = HopBatches(
                self.tables, self._source, self._buffers, rows, order, self.batch_size, held.pop_all()
            )
        return self._current

    def close(self) -> None:
        """Give memory and files back; also done on leaving a `with`."""
        if self._source is not None:
            if self._current is not None:
                self._current.close()
            self._source.close()
            self._source, self._buffers, self._current = None, [], None
            self._exit.close()

    def __enter__(self) -> HopLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class HopBatches:
    """The batches of one pass, in their order; as many are on their way as there are buffers left."""

    def __init__(
        self,
        tables: HopTables,
        source: RowSource,
        buffers: Sequence[BatchBuffer],
        rows: Rows,
        order: RowOrder,
        batch_size: int,
        held: ExitStack,
    ) -> None:
        self._tables = tables
        self._source = source
        self._free = list(buffers)
        self._rows = rows
        self._order = order
        self._batch_size = batch_size
        self._held = held
        self._next = 0
        self._on_their_way: deque[tuple[int, Rows, BatchBuffer, Ticket]] = deque()
        self._used: BatchBuffer | None = None

    def __len__(self) -> int:
        """Batches of the whole pass."""
        return -(-len(self._rows) // self._batch_size)

    def __iter__(self) -> Iterator[HopBatch]:
        return self

    def __next__(self) -> HopBatch:
        if self._used is not None:
            self._free.append(self._used)
            self._used = None
        try:
            while self._free and self._next < len(self):
                self._begin()
            begin = time.perf_counter()
            counts = self._source.finish(self._on_their_way[0][-1]) if self._on_their_way else None
        except BaseException:
            self.close()
            raise
        if counts is None:
            self.close()
            raise StopIteration
        number, rows, buffer, _ = self._on_their_way.popleft()
        self._used = buffer
        return HopBatch(
            number=number,
            x=torch.from_numpy(buffer.values(len(rows))).view(_TORCH_DTYPES[self._tables.dtype]),
            nodes=rows if self._tables.rows is None else self._tables.rows[rows],
            rows=rows,
            counts=counts,
            stall_seconds=time.perf_counter() - begin,
        )

    def _begin(self) -> None:
        start = self._next * self._batch_size
        rows = self._rows[self._order.positions(start, start + self._batch_size)]
        buffer = self._free.pop()
        self._on_their_way.append((self._next, rows, buffer, self._source.begin(rows, buffer)))
        self._next += 1

    def close(self) -> None:
        """Give up what is on its way; returns once nothing is written any more."""
        self._source.abandon([ticket for *_, ticket in self._on_their_way])
        self._on_their_way.clear()
        self._free, self._next = [], len(self)
        self._held.close()

    def __enter__(self) -> HopBatches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _resolve_tables(tables: HopTables, which: Sequence[int] | None) -> tuple[int, ...]:
    """Places in tables.files, from 0."""
    if which is None:
        return tuple(range(tables.num_tables))
    for table in which:
        if not -tables.num_tables <= table < tables.num_tables:
            raise ConfigError(f"{tables.path}: has {tables.num_tables} tables, no table {table}")
    if not which:
        raise ConfigError("which must name at least one table")
    return tuple(table % tables.num_tables for table in which)


def _memory_bytes(memory: int | str | None) -> int:
    if memory is None:
        return default_memory_bytes()
    return parse_bytes(memory) if isinstance(memory, str) else memory
