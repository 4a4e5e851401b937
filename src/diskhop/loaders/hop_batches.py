"""The batches of one pass over hop tables."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

import torch

from diskhop.counters import FetchCounts
from diskhop.hops.read.nodes import TableNodes, TableRows
from diskhop.hops.read.order import RowOrder
from diskhop.hops.read.rows import BatchBuffer, RowSource, Ticket
from diskhop.hops.tables import HopTables
from diskhop.protocols import NodeRows, SourceIds

_TORCH_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


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


class HopBatches:
    """An iterator over the batches of one pass, in order. Every free buffer has a batch in flight."""

    def __init__(
        self,
        tables: HopTables,
        source: RowSource,
        buffers: Sequence[BatchBuffer],
        rows: TableRows,
        order: RowOrder,
        batch_size: int,
        resources: ExitStack,
    ) -> None:
        self._dtype = _TORCH_DTYPES[tables.dtype]
        self._nodes = TableNodes(tables)
        self._source = source
        self._free = list(buffers)
        self._rows = rows
        self._order = order
        self._batch_size = batch_size
        self._resources = resources
        self._next = 0
        self._in_flight: deque[tuple[int, TableRows, BatchBuffer, Ticket]] = deque()
        self._used: BatchBuffer | None = None

    def __len__(self) -> int:
        """Number of batches of the whole pass."""
        return -(-len(self._rows) // self._batch_size)

    def __iter__(self) -> HopBatches:
        return self

    def __next__(self) -> HopBatch:
        if self._used is not None:
            self._free.append(self._used)
            self._used = None
        try:
            while self._free and self._next < len(self):
                self._begin()
            begin = time.perf_counter()
            counts = self._source.finish(self._in_flight[0][-1]) if self._in_flight else None
        except BaseException:
            self.close()
            raise
        if counts is None:
            self.close()
            raise StopIteration
        number, rows, buffer, _ = self._in_flight.popleft()
        self._used = buffer
        return HopBatch(
            number=number,
            x=torch.from_numpy(buffer.values(len(rows))).view(self._dtype),
            rows=rows,
            table_nodes=self._nodes,
            counts=counts,
            stall_seconds=time.perf_counter() - begin,
        )

    def _begin(self) -> None:
        start = self._next * self._batch_size
        rows = self._rows[self._order.positions(start, start + self._batch_size)]
        buffer = self._free.pop()
        self._in_flight.append((self._next, rows, buffer, self._source.begin(rows, buffer)))
        self._next += 1

    def close(self) -> None:
        """Abandon the batches in flight; returns once nothing is written to their buffers any more."""
        self._source.abandon([ticket for *_, ticket in self._in_flight])
        self._in_flight.clear()
        self._free, self._next = [], len(self)
        self._resources.close()

    def __enter__(self) -> HopBatches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
