"""The batches of one pass over hop tables."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType

import torch

from diskhop.budget import Reservation
from diskhop.counters import FetchCounts
from diskhop.errors import ConfigError
from diskhop.hops.read.nodes import TableNodes, TableRows
from diskhop.hops.read.order import RowOrder
from diskhop.hops.read.rows import BatchBuffer, RowSource, Ticket
from diskhop.hops.tables import HopTables
from diskhop.loaders.hop_delivery import DTYPES, DeviceSource
from diskhop.loaders.turns import PassTurns
from diskhop.protocols import NodeRows, SourceIds
from diskhop.runtime.process import OwnerProcess


@dataclass(frozen=True, slots=True, eq=False)
class HopBatch:
    """Rows of the loader's tables, valid until the next batch is requested.

    number: number of the batch in its pass.
    x: (tables, batch, dim), in the dtype of the tables.
    rows: rows of the tables, int64 (batch).
    table_nodes: which nodes the rows are.
    counts: reads and bytes of fetching it.
    stall_seconds: seconds that the consumer waited for it.
    """

    number: int
    x: torch.Tensor
    rows: TableRows
    table_nodes: TableNodes
    counts: FetchCounts
    stall_seconds: float

    @property
    def nodes(self) -> SourceIds:
        """Ids of the nodes in the source, int64 (batch)."""
        return self.table_nodes.ids(self.rows)

    @property
    def node_rows(self) -> NodeRows:
        """Rows of the nodes in the dataset, int64 (batch)."""
        return self.table_nodes.node_rows(self.rows)


@dataclass(slots=True, eq=False)
class OpenTables:
    """Resources that the passes over one loader share.

    tables: the open folder.
    nodes: which nodes its rows are.
    source: reads rows; None once the loader is closed.
    num_buffers: buffers of the loader.
    free: those that no batch is in.
    process: the process of the loader's threads.
    turns: lets one pass run at a time.
    """

    tables: HopTables
    nodes: TableNodes
    source: RowSource | None
    num_buffers: int
    free: list[BatchBuffer]
    process: OwnerProcess
    turns: PassTurns = field(default_factory=PassTurns)

    def require_source(self) -> RowSource:
        """Return the source. Raises ConfigError if the loader is closed."""
        if self.source is None:
            raise ConfigError("this HopLoader is closed; make a new one")
        return self.source


class HopBatches:
    """An iterator over the batches of one pass. Every free buffer has a batch in flight.

    numbers: the batches to deliver, in this order; batch n has the rows from n * batch_size on, in the pass's order.
    Several passes may be under way: each keeps the buffer of its last batch, and one of them reads at a time.
    """

    def __init__(
        self,
        opened: OpenTables,
        rows: TableRows,
        order: RowOrder,
        batch_size: int,
        reservation: Reservation,
        numbers: Sequence[int],
    ) -> None:
        self._opened = opened
        self._rows = rows
        self._order = order
        self._batch_size = batch_size
        self._reservation = reservation
        self._numbers = numbers
        self._next = 0
        self._in_flight: deque[tuple[int, TableRows, BatchBuffer, Ticket]] = deque()
        self._used: BatchBuffer | None = None
        self.is_closed = False

    def __len__(self) -> int:
        """Number of batches that the pass delivers."""
        return len(self._numbers)

    def __iter__(self) -> HopBatches:
        return self

    def __next__(self) -> HopBatch:
        opened = self._opened
        opened.process.require_here()
        with opened.turns.turn(self):
            source = opened.require_source()
            self._release_used()
            try:
                self._require_buffer()
                while opened.free and self._next < len(self):
                    self._begin(source)
                begin = time.perf_counter()
                counts = source.finish(self._in_flight[0][-1]) if self._in_flight else None
            except BaseException:
                self.close()
                raise
            if counts is None:
                self.close()
                raise StopIteration
            number, rows, buffer, _ = self._in_flight.popleft()
            self._used = buffer
        if isinstance(source, DeviceSource):
            x = source.take(buffer)
        else:
            x = torch.from_numpy(buffer.values(len(rows))).view(DTYPES[opened.tables.dtype])
        return HopBatch(
            number=number,
            x=x,
            rows=rows,
            table_nodes=opened.nodes,
            counts=counts,
            stall_seconds=time.perf_counter() - begin,
        )

    def suspend(self) -> None:
        """See Suspendable."""
        if self._in_flight and self._opened.source is not None:
            self._opened.source.abandon([ticket for *_, ticket in self._in_flight])
        self._next -= len(self._in_flight)
        self._opened.free += [buffer for _, _, buffer, _ in self._in_flight]
        self._in_flight.clear()

    def close(self) -> None:
        """End the pass; returns once nothing is written to its buffers any more. Does nothing in a forked child."""
        if self._opened.process.is_here:
            self._opened.turns.end(self)
            self._release_used()
            self._next = len(self)
            self._reservation.release()
            self.is_closed = True

    def __enter__(self) -> HopBatches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _require_buffer(self) -> None:
        opened = self._opened
        if self._next < len(self) and not self._in_flight and not opened.free:
            raise ConfigError(
                f"num_buffers must be more than {opened.num_buffers} here: each buffer has a batch of another pass "
                f"over this HopLoader; pass num_buffers={opened.num_buffers + 1}"
            )

    def _begin(self, source: RowSource) -> None:
        number = self._numbers[self._next]
        start = number * self._batch_size
        rows = self._rows[self._order.positions(start, start + self._batch_size)]
        buffer = self._opened.free.pop()
        self._in_flight.append((number, rows, buffer, source.begin(rows, buffer)))
        self._next += 1

    def _release_used(self) -> None:
        used, self._used = self._used, None
        if used is not None:
            self._opened.free.append(used)
