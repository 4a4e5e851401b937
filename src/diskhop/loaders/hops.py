"""HopLoader: mini-batches of rows of hop tables, from memory or disk. A batch is a few large reads, without sampling.

loader = diskhop.HopLoader("papers/derived/propagated-0123456789abcdef", dataset.split("train"), memory="2GB")
for batch in loader:
    out = model(batch.x)  # (tables, batch, dim)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, get_args

import numpy as np
import torch

from diskhop._native import BufferPool, Engine
from diskhop.budget import Budget, parse_bytes
from diskhop.config.options import check_arguments, require, require_known
from diskhop.config.train import HopConfig
from diskhop.disk.probe import remembered_model
from diskhop.errors import ConfigError
from diskhop.hops.read.nodes import TableNodes, TableRows
from diskhop.hops.read.order import Shuffle, order_bytes, row_order
from diskhop.hops.read.placement import Place, Placement, loader_bytes, place_tables
from diskhop.hops.read.rows import BatchBuffer, DiskRows, MemoryRows, RowSource
from diskhop.hops.tables import HopTables, open_hop_tables
from diskhop.io.engine import open_engine
from diskhop.io.locks import shared_directory
from diskhop.loaders.hop_batches import HopBatch, HopBatches
from diskhop.protocols import NodeRows, SourceIds
from diskhop.system.memory import default_memory_bytes, default_threads

DEFAULT_BATCH_SIZE = 8000


class HopLoader:
    """Mini-batches of rows of hop tables.

    tables: HopTables or their folder.
    nodes: ids of the source, each once, or a boolean mask in the order of Dataset.node_ids(); default: all nodes with
        rows.
    batch_size: rows per batch.
    shuffle: 'rows' (SGD-RR), 'chunks' (SGD-CR) or 'none'; default: rows in memory, chunks on disk.
    chunk_rows: adjacent rows per chunk; default: the batch size.
    which: indexes in `tables.files`, -1 for the last; default: all.
    place: 'memory' to load the tables whole, or 'disk'; default: memory if they fit.
    memory: a Budget, bytes, or a size such as '2GB'; default: half of the free memory.
    num_buffers: batches in memory; 2 reads one batch while the other is used, 1 reads none ahead.
    engine: the I/O engine.
    threads: threads that copy rows; default: half of the cores.
    seed: random seed of shuffling.
    node_rows: rows of the dataset in place of nodes, for code that has them.

    The same seed gives the same batches, bit for bit, from memory and disk. Every pass over the loader is the next
    epoch; run() passes over other rows. Raises ConfigError for invalid arguments, BudgetError with the smallest memory
    that works, and the errors of open_hop_tables().
    """

    def __init__(
        self,
        tables: HopTables | Path | str,
        nodes: SourceIds | Sequence[int] | Any = None,
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
        node_rows: NodeRows | None = None,
    ) -> None:
        check_arguments(
            "HopLoader", HopConfig, batch_size=batch_size, chunk_rows=chunk_rows, threads=threads, seed=seed
        )
        require(num_buffers >= 1, "num_buffers", "at least 1", num_buffers, "for example num_buffers=2")
        for name, value, known in (("place", place, get_args(Place)), ("shuffle", shuffle, get_args(Shuffle))):
            if value is not None:
                require_known(name, value, known)
        self.tables = tables if isinstance(tables, HopTables) else open_hop_tables(Path(tables))
        self.which = _resolve_tables(self.tables, which)
        self.batch_size = batch_size
        self.chunk_rows = batch_size if chunk_rows is None else chunk_rows
        self.budget = memory if isinstance(memory, Budget) else Budget(_memory_bytes(memory))
        self._seed = seed
        self._epoch = 0
        self._current: HopBatches | None = None
        self._source: RowSource | None
        self._nodes = TableNodes(self.tables)
        if node_rows is not None:
            rows = self.rows_of_node_rows(node_rows)
        else:
            rows = np.arange(self.tables.num_rows) if nodes is None else self.rows_of(nodes)
        num_rows = len(rows)
        needed = self._place(num_rows, num_buffers, place, shuffle)
        with ExitStack() as opened:
            opened.enter_context(shared_directory(self.tables.path))
            for name, num_bytes in needed.items():
                opened.enter_context(self.budget.reserve(name, num_bytes))
            self.rows = rows
            self._open(num_buffers, engine, threads or max(1, default_threads() // 2))
            self._exit = opened.pop_all()

    def _place(self, num_rows: int, num_buffers: int, place: Place | None, shuffle: Shuffle | None) -> dict[str, int]:
        """Choose where the tables are, and return the bytes to reserve by name. Raises BudgetError."""
        shape, num_tables = self.tables.shape, len(self.which)
        in_memory, on_disk = (
            loader_bytes(shape, num_tables, self.batch_size, each, num_buffers) for each in ("memory", "disk")
        )
        rows_bytes = 8 * num_rows
        all_rows_bytes = rows_bytes + order_bytes(num_rows, shuffle or "rows", self.chunk_rows)
        self.placement: Placement = place_tables(
            num_bytes=sum(in_memory.values()) + all_rows_bytes,
            memory_bytes=self.budget.available_bytes,
            place=place,
            shuffle=shuffle,
        )
        needed = {**(in_memory if self.placement.place == "memory" else on_disk), "hop rows": rows_bytes}
        self.budget.require({**needed, "row order": order_bytes(num_rows, self.placement.shuffle, self.chunk_rows)})
        return needed

    def _open(self, num_buffers: int, engine: Engine | str, num_threads: int) -> None:
        """Open the tables where they were placed, and allocate the buffers."""
        pool = BufferPool(0)
        opened_engine = engine if isinstance(engine, Engine) else open_engine(engine).engine
        if self.placement.place == "memory":
            self._source = MemoryRows(self.tables, self.which, opened_engine, pool, num_threads=num_threads)
        else:
            self._source = DiskRows(
                self.tables,
                self.which,
                opened_engine,
                pool,
                max_gap_bytes=remembered_model(self.tables.path, opened_engine.name).break_even_gap_bytes,
                num_threads=num_threads,
            )
        batch_rows = min(self.batch_size, self.tables.num_rows)
        self._buffers = [BatchBuffer(pool, len(self.which), batch_rows, self.tables.shape) for _ in range(num_buffers)]

    def __len__(self) -> int:
        """Number of batches per epoch."""
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[HopBatch]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        with self.run(epoch=epoch) as batches:
            yield from batches

    def __repr__(self) -> str:
        return f"HopLoader({len(self.rows)} rows of {len(self.which)} tables in {self.placement.place})"

    def rows_of(self, nodes: SourceIds | Sequence[int] | Any) -> TableRows:
        """Find the rows of nodes, int64, ascending, for run(). nodes: as for the loader.

        Raises ConfigError for a node without a row, or named twice.
        """
        given = nodes.numpy() if isinstance(nodes, torch.Tensor) else np.asarray(nodes)
        if given.dtype == np.bool_:
            return self._nodes.rows_of_mask(given)
        return self._sorted(self._nodes.rows_of_ids(SourceIds(given.astype(np.int64))))

    def rows_of_node_rows(self, node_rows: NodeRows) -> TableRows:
        """Find the rows of nodes like rows_of(). node_rows: their rows in the dataset."""
        return self._sorted(self._nodes.rows_of_node_rows(node_rows))

    def _sorted(self, rows: TableRows) -> TableRows:
        rows = np.sort(rows)
        twice = np.flatnonzero(np.diff(rows) == 0)
        if len(twice):
            (node,) = self._nodes.ids(rows[twice[:1]])
            raise ConfigError(f"nodes must name each node at most once, but node {node} is named twice")
        return rows

    def run(self, rows: TableRows | None = None, *, epoch: int = 0, shuffle: Shuffle | None = None) -> HopBatches:
        """Start a pass; use it in a `with` block. It ends a pass that is still open.

        rows: result of rows_of(); default: the loader's rows. shuffle: default: as the loader.
        """
        if self._source is None:
            raise ConfigError("this HopLoader is closed; make a new one")
        if self._current is not None:
            self._current.close()
        rows = self.rows if rows is None else rows
        shuffle = self.placement.shuffle if shuffle is None else shuffle
        with ExitStack() as opened:
            opened.enter_context(self.budget.reserve("row order", order_bytes(len(rows), shuffle, self.chunk_rows)))
            order = row_order(len(rows), shuffle, chunk_rows=self.chunk_rows, seed=self._seed, epoch=epoch)
            self._current = HopBatches(
                self.tables, self._source, self._buffers, rows, order, self.batch_size, opened.pop_all()
            )
        return self._current

    def close(self) -> None:
        """Return memory and close files; leaving a `with` block does it too."""
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


def _resolve_tables(tables: HopTables, which: Sequence[int] | None) -> tuple[int, ...]:
    """Return indexes in tables.files, from 0."""
    if which is None:
        return tuple(range(tables.num_tables))
    for table in which:
        if not -tables.num_tables <= table < tables.num_tables:
            raise ConfigError(
                f"{tables.path}: has {tables.num_tables} tables, no table {table}; "
                f"use which=[0] to which=[{tables.num_tables - 1}]"
            )
    if not which:
        raise ConfigError("which must name at least one table; pass which=[-1] for the last")
    return tuple(table % tables.num_tables for table in which)


def _memory_bytes(memory: int | str | None) -> int:
    if memory is None:
        return default_memory_bytes()
    return parse_bytes(memory) if isinstance(memory, str) else memory
