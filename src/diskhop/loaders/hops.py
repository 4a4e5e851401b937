"""HopLoader: mini-batches of rows of hop tables, from memory or disk. A batch is a few large reads, without sampling.

loader = diskhop.HopLoader("papers/derived/propagated-0123456789abcdef", dataset.split("train"), memory="2GB")
for batch in loader:
    out = model(batch.x)  # (tables, batch, dim)
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, get_args

import numpy as np
import torch

from diskhop._native import BufferPool, Engine
from diskhop.batches.trace import hash_seeds
from diskhop.budget import Budget, parse_sizes
from diskhop.config.hop import HopConfig
from diskhop.config.options import check_arguments, check_options, require, require_known
from diskhop.disk.probe import remembered_model
from diskhop.errors import ConfigError
from diskhop.hops.read.nodes import TableNodes, TableRows
from diskhop.hops.read.order import Shuffle, order_bytes, row_order
from diskhop.hops.read.placement import SHARED, DeviceRoom, Place, Placement, device_bytes, loader_bytes, place_tables
from diskhop.hops.read.rows import BatchBuffer, DiskRows, MemoryRows, RowSource
from diskhop.hops.tables import HopTables, open_hop_tables
from diskhop.io.engine import open_engine
from diskhop.io.locks import shared_directory
from diskhop.loaders.checks import budget_of, require_texts, whole_numbers
from diskhop.loaders.destination import describe_auto, device_of, memory_for_rows, require_device
from diskhop.loaders.hop_batches import HopBatch, HopBatches, OpenTables
from diskhop.loaders.hop_delivery import CopiedRows, DeviceRows, DeviceSource
from diskhop.loaders.node_arrays import node_array, require_distinct
from diskhop.loaders.progress import Progress
from diskhop.loaders.shares import LoaderShare, PassNumbers, made_together
from diskhop.pipeline.transfer import RING_BYTES, DeviceCopies
from diskhop.protocols import NodeRows, SourceIds
from diskhop.runtime.process import OwnerProcess
from diskhop.sampling.seeds import count_batches
from diskhop.system.memory import default_threads
from diskhop.system.resident import OwnMemory, SharedMemory

DEFAULT_BATCH_SIZE = 8000


class HopLoader:
    """Mini-batches of rows of hop tables.

    tables: HopTables or their folder.
    nodes: ids of the source, each once, or a boolean mask in the order of Dataset.node_ids(); default: all nodes with
        rows.
    batch_size: rows per batch.
    shuffle: 'rows' (SGD-RR), 'chunks' (SGD-CR) or 'none'; default: rows in memory, chunks on disk.
    chunk_rows: adjacent rows per chunk; default: the batch size.
    which: indexes in `tables.files`, as [-1] for the last; default: all.
    place: 'device' or 'memory' to load the tables whole there, or 'disk'; default: the first of these that they fit.
    memory: a Budget, bytes, or a size such as '2GB'; default: half of the free memory.
    num_buffers: batches in memory; 2 reads one batch while the other is used, 1 reads none ahead.
    engine: the I/O engine.
    threads: threads that copy rows; default: half of the cores.
    seed: random seed of shuffling.
    node_rows: rows of the dataset in place of nodes, for code that has them; this process gets all batches.
    shared_memory: with node_rows, memory of processes that make the loader together, for one copy of the tables.
    device: where batches are delivered, 'cuda', 'cuda:N' or 'auto' (a GPU if there is one), while the one before is
        used. Default: memory, which 'cpu' means too.
    device_memory: bytes, or a size such as '8GB', of the device that tables may take; default: half of what is free.
        Has no effect where 'auto' finds no GPU, which the placement says.
    num_replicas, rank: as torch's DistributedSampler has them; default: those of the process group, if there is one.

    The same seed gives the same batches, bit for bit, from memory and disk. Every pass over the loader is the next
    epoch; run() passes over other rows. In a process group of torch.distributed, all processes make the loader together
    and get equally many of its batches (see NeighborLoader). A machine has one copy of tables in memory. As many passes
    may be under way as there are buffers. A loader belongs to the process that made it. Raises ConfigError for invalid
    arguments, BudgetError with the smallest memory that works, and the errors of open_hop_tables().

    >>> tables = diskhop.propagate("my-graph", hops=2, memory="200MB").tables
    >>> with diskhop.HopLoader(tables, batch_size=100, memory="200MB") as loader:
    ...     batch = next(iter(loader))
    >>> len(batch.x)  # X and two hops
    3
    """

    @made_together
    def __init__(
        self,
        tables: HopTables | PathLike[str] | str,
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
        device: torch.device | str | None = None,
        device_memory: int | str | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        shared_memory: SharedMemory | None = None,
    ) -> None:
        check_options({"batch_size": batch_size, "seed": seed}, "HopLoader", (HopConfig,))
        check_arguments("HopLoader", HopConfig, chunk_rows=chunk_rows, threads=threads)
        self._device = device_of(device)
        require_device(self._device, device, device_memory)
        (num_buffers,) = whole_numbers("num_buffers", [num_buffers], "2")
        require(num_buffers >= 1, "num_buffers", "at least 1", num_buffers, "for example num_buffers=2")
        require_texts(place=place, shuffle=shuffle, engine=None if isinstance(engine, Engine) else engine)
        for name, value, known in (("place", place, get_args(Place)), ("shuffle", shuffle, get_args(Shuffle))):
            if value is not None:
                require_known(name, value, known)
        is_shared = node_rows is None
        self._share = LoaderShare("HopLoader", num_replicas if is_shared else 1, rank if is_shared else 0)
        self.budget = self._share.budget_of(memory) if is_shared else budget_of(memory)
        self._memory = self._share.memory if is_shared else shared_memory
        self._process = OwnerProcess(self, "HopLoader")
        self.tables = _open_tables(tables)
        self.which = _resolve_tables(self.tables, which)
        self.batch_size = int(batch_size)
        self.chunk_rows = self.batch_size if chunk_rows is None else int(chunk_rows)
        self._seed = int(seed)
        self._progress = Progress("HopLoader")
        self._passes: list[HopBatches] = []
        self._nodes = TableNodes(self.tables)
        if node_rows is not None:
            self.rows = self.rows_of_node_rows(node_rows)
        else:
            self.rows = np.arange(self.tables.num_rows) if nodes is None else self.rows_of(nodes)

        def choose() -> Placement:
            return self._place(num_buffers, place, shuffle, device_memory)

        placement = self._require_same(choose())
        line = describe_auto(device, device_memory)
        self.placement = replace(placement, reason=f"{placement.reason}. {line}") if line else placement
        self._share.settle(self._arguments, "nodes")
        with ExitStack() as opened:
            opened.enter_context(shared_directory(self.tables.path))
            for name, num_bytes in self._needed(self.placement, num_buffers).items():
                opened.enter_context(self.budget.reserve(name, num_bytes, is_shared=name in self._shared))
            self._open(num_buffers, engine, threads or max(1, default_threads() // 2))
            self._exit = opened.pop_all()

    def _require_same(self, placement: Placement) -> Placement:
        """Return the placement, which must be that of all processes that share memory. Raises ConfigError."""
        if self._memory is not None and (first := self._memory.first(lambda: placement.place)) != placement.place:
            common = max(first, placement.place, key=get_args(Place).index)
            raise ConfigError(
                f"HopLoader: place is '{first}' in one process of this machine and '{placement.place}' in another, "
                f"which share its memory; pass place='{common}' to all of them"
            )
        return placement

    def _place(
        self, num_buffers: int, place: Place | None, shuffle: Shuffle | None, device_memory: int | str | None
    ) -> Placement:
        """Choose where the tables are. Raises BudgetError."""

        def needed(placement: Placement) -> dict[str, int]:
            order = order_bytes(len(self.rows), placement.shuffle, self.chunk_rows)
            return {**self._needed(placement, num_buffers), "row order": order}

        in_memory = Placement(place="memory", shuffle=shuffle or "rows", reason="")
        placement = place_tables(
            num_bytes=self.budget.needed_by(needed(in_memory), self._shared),
            memory_bytes=self.budget.left_after({}),
            place=place,
            shuffle=shuffle,
            device=self._room(num_buffers, place, device_memory),
        )
        self.budget.require(needed(placement), self._shared)
        return placement

    @property
    def _shared(self) -> frozenset[str]:
        """Names of memory of which the processes of this machine have one copy."""
        return frozenset() if self._memory is None else SHARED

    def _needed(self, placement: Placement, num_buffers: int) -> dict[str, int]:
        """Return the bytes that the loader reserves by name."""
        return {
            **loader_bytes(self.tables.shape, len(self.which), self.batch_size, placement.place, num_buffers),
            "hop rows": self.rows.nbytes,
            **({} if self._device is None else {"transfer buffers": RING_BYTES}),
        }

    def _room(self, num_buffers: int, place: Place | None, device_memory: int | str | None) -> DeviceRoom | None:
        """Return the device's memory for tables; None without a device."""
        if self._device is None:
            require(place != "device", "place", "'memory' or 'disk' without a device", place, "add device='cuda'")
            return None
        needed = device_bytes(self.tables.shape, len(self.which), self.batch_size, num_buffers)
        free = parse_sizes(device_memory=device_memory).get("device_memory_bytes")
        return DeviceRoom(needed, memory_for_rows(self._device) if free is None else free)

    def _open(self, num_buffers: int, engine: Engine | str, num_threads: int) -> None:
        """Open the tables where they were placed, and allocate the buffers."""
        pool = BufferPool(0)
        opened_engine = engine if isinstance(engine, Engine) else open_engine(engine).engine
        source: RowSource
        if self.placement.place == "memory":
            resident = self._memory or OwnMemory()
            source = MemoryRows(self.tables, self.which, opened_engine, pool, resident, num_threads=num_threads)
        else:
            source = DiskRows(
                self.tables,
                self.which,
                opened_engine,
                pool,
                max_gap_bytes=remembered_model(self.tables.path, opened_engine.name).break_even_gap_bytes,
                num_threads=num_threads,
            )
        batch_rows = min(self.batch_size, self.tables.num_rows)
        shape, num_tables = self.tables.shape, len(self.which)
        buffers = [BatchBuffer(pool.take, num_tables, batch_rows, shape) for _ in range(num_buffers)]
        if self._device is not None:
            source = self._delivered(source, buffers[0], batch_rows, DeviceCopies(self._device))
        self._opened = OpenTables(self.tables, self._nodes, source, num_buffers, buffers, self._process)

    def _delivered(self, source: RowSource, buffer: BatchBuffer, batch_rows: int, copies: DeviceCopies) -> DeviceSource:
        """Return a source on the device, of tables that are there or in memory."""
        dtype = self.tables.dtype
        if self.placement.place == "device":
            return DeviceRows(source, buffer, batch_rows, self.tables.shape, dtype, copies)
        return CopiedRows(source, dtype, copies)

    def __len__(self) -> int:
        """Number of batches per epoch, of this process."""
        return len(self._numbers)

    @property
    def _numbers(self) -> PassNumbers:
        return PassNumbers.of(self._share.ranks, count_batches(len(self.rows), self.batch_size))

    @property
    def dataset(self) -> range:
        """Positions of the rows, as torch's loaders have them: its length is their number."""
        return range(len(self.rows))

    def __iter__(self) -> Iterator[HopBatch]:
        self._process.require_here()
        position = self._progress.begin()
        try:
            numbers = self._numbers
            left = numbers.at(range(position.delivered, len(numbers)))
            with self._begin(self.rows, position.epoch, self.placement.shuffle, left) as batches:
                for batch in batches:
                    position.add(numbers.place_of(batch.number))
                    self._progress.advance(position)
                    yield batch
                self._progress.advance(position)
        finally:
            self._progress.end(position)

    def __repr__(self) -> str:
        return f"HopLoader({len(self.rows)} rows of {len(self.which)} tables in {self.placement.place})"

    def rows_of(self, nodes: SourceIds | Sequence[int] | Any) -> TableRows:
        """Find the rows of nodes, int64, ascending, for run(). nodes: as for the loader.

        Raises ConfigError for a node without a row, or named twice.
        """
        given = node_array("nodes", nodes)
        if given.dtype == np.bool_:
            rows = self._nodes.rows_of_mask(given)
            if len(rows) == 0:
                raise ConfigError(
                    "nodes must have at least one node, and the mask has none; pass ids, or leave nodes out"
                )
            return rows
        require_distinct("nodes", given)
        return np.sort(self._nodes.rows_of_ids(SourceIds(given)))

    def rows_of_node_rows(self, node_rows: NodeRows) -> TableRows:
        """Find the rows of nodes like rows_of(). node_rows: their rows in the dataset, each once."""
        return np.sort(self._nodes.rows_of_node_rows(node_rows))

    def run(
        self,
        rows: TableRows | None = None,
        *,
        epoch: int = 0,
        shuffle: Shuffle | None = None,
        numbers: Sequence[int] | None = None,
    ) -> HopBatches:
        """Start a pass; use it in a `with` block.

        rows: result of rows_of(); default: the loader's rows. shuffle: default: as the loader. numbers: of the batches
        to deliver; default: all of the pass.
        """
        rows = self.rows if rows is None else rows
        numbers = range(count_batches(len(rows), self.batch_size)) if numbers is None else numbers
        return self._begin(rows, epoch, self.placement.shuffle if shuffle is None else shuffle, numbers)

    def _begin(self, rows: TableRows, epoch: int, shuffle: Shuffle, numbers: Sequence[int]) -> HopBatches:
        """Start a pass that delivers some batches."""
        self._process.require_here()
        self._opened.require_source()
        reservation = self.budget.reserve("row order", order_bytes(len(rows), shuffle, self.chunk_rows))
        try:
            order = row_order(len(rows), shuffle, chunk_rows=self.chunk_rows, seed=self._seed, epoch=epoch)
        except BaseException:
            reservation.release()
            raise
        self._passes = [each for each in self._passes if not each.is_closed]
        self._passes.append(HopBatches(self._opened, rows, order, self.batch_size, reservation, numbers))
        return self._passes[-1]

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position: load_state_dict() on another loader resumes with the batches that are left.

        Of several passes that are under way, it is the one that delivered the last batch; run() does not count.
        """
        return self._progress.state(self._state_arguments, len(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume the next pass from a state_dict() of a loader with the same arguments."""
        self._progress.load(state, self._state_arguments, len(self))

    @property
    def _state_arguments(self) -> dict[str, Any]:
        return {**self._arguments, "processes": self._share.ranks.count}

    @cached_property
    def _arguments(self) -> dict[str, Any]:
        """Return the arguments that determine the batches."""
        return {
            "tables": [self.tables.files[table].checksum for table in self.which],
            "seed": self._seed,
            "batch_size": self.batch_size,
            "shuffle": self.placement.shuffle,
            "chunk_rows": self.chunk_rows if self.placement.shuffle == "chunks" else 0,
            "nodes": f"{len(self.rows)} rows, hash {hash_seeds(self.rows)}",
        }

    def close(self) -> None:
        """Return memory and close files; leaving a `with` block does it too. Does nothing in a forked child."""
        if not self._process.is_here:
            return
        with self._opened.turns.turn(None):
            for each in self._passes:
                each.close()
            source, self._opened.source = self._opened.source, None
            if source is not None:
                source.close()
                self._opened.free.clear()
                self._exit.close()

    def __reduce__(self) -> Any:
        return self._process.refuse_pickling()

    def __enter__(self) -> HopLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open_tables(tables: HopTables | PathLike[str] | str) -> HopTables:
    if isinstance(tables, HopTables):
        return tables
    if isinstance(tables, str | PathLike):
        return open_hop_tables(Path(tables))
    raise ConfigError(
        f"tables must be HopTables or their folder, got {reprlib.repr(tables)}; "
        "pass diskhop.propagate(dataset, diskhop.PropagationSpec(hops=2)).tables"
    )


def _resolve_tables(tables: HopTables, which: Sequence[int] | None) -> tuple[int, ...]:
    """Return indexes in tables.files, from 0."""
    if which is None:
        return tuple(range(tables.num_tables))
    which = whole_numbers("which", which, "[-1]")
    for table in which:
        if not -tables.num_tables <= table < tables.num_tables:
            raise ConfigError(
                f"{tables.path}: has {tables.num_tables} tables, no table {table}; "
                f"use which=[0] to which=[{tables.num_tables - 1}]"
            )
    if not which:
        raise ConfigError("which must name at least one table; pass which=[-1] for the last")
    return tuple(table % tables.num_tables for table in which)
