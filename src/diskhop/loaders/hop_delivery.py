"""Delivery of rows of hop tables on a device: copied there from a source, or chosen from tables that are there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from diskhop.counters import FetchCounts
from diskhop.errors import ConfigError
from diskhop.hops.read.rows import BatchBuffer, Rows, RowSource, Ticket
from diskhop.hops.tables import TableShape
from diskhop.pipeline.transfer import Arrival, DeviceCopies
from diskhop.runtime.blocks import row_ranges

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class DeviceSource(ABC):
    """A source (see RowSource) whose batches are tensors on a device, by a thread of its own.

    copies: to the device, for this source alone. The caller has reserved RING_BYTES.
    """

    def __init__(self, copies: DeviceCopies) -> None:
        self._copies = copies
        self._thread = ThreadPoolExecutor(1, "hop-copies")
        # Of batches that are fetched and not taken, by their buffers.
        self._arrived: dict[int, tuple[Tensor, Arrival]] = {}

    @abstractmethod
    def begin(self, rows: Rows, buffer: BatchBuffer) -> Ticket:
        """See RowSource. The buffer stands for the batch."""

    def finish(self, ticket: Ticket) -> FetchCounts:
        """See RowSource."""
        return ticket.result()

    def take(self, buffer: BatchBuffer) -> Tensor:
        """Return the batch of a buffer, (tables, batch, dim), for the current stream of the device; once."""
        x, arrival = self._arrived.pop(id(buffer))
        arrival.wait()
        return x

    def abandon(self, tickets: Sequence[Ticket]) -> None:
        """See RowSource."""
        for ticket in tickets:
            ticket.exception()
        self._arrived.clear()

    def close(self) -> None:
        """See RowSource."""
        self._thread.shutdown()
        self._arrived.clear()

    def _arrive(self, buffer: BatchBuffer, x: Tensor) -> None:
        self._arrived[id(buffer)] = x, self._copies.finish()


class CopiedRows(DeviceSource):
    """Rows of a source in memory, each batch copied to the device while the one before is used. Closes the source."""

    def __init__(self, source: RowSource, dtype: str, copies: DeviceCopies) -> None:
        super().__init__(copies)
        self._source = source
        self._dtype = DTYPES[dtype]
        self._reading: WeakKeyDictionary[Ticket, Ticket] = WeakKeyDictionary()

    def begin(self, rows: Rows, buffer: BatchBuffer) -> Ticket:
        """See RowSource."""
        reading = self._source.begin(rows, buffer)
        ticket = self._thread.submit(self._copy, reading, len(rows), buffer)
        self._reading[ticket] = reading
        return ticket

    def abandon(self, tickets: Sequence[Ticket]) -> None:
        """See RowSource."""
        self._source.abandon([self._reading[ticket] for ticket in tickets])
        super().abandon(tickets)

    def close(self) -> None:
        """See RowSource."""
        super().close()
        self._source.close()

    def _copy(self, reading: Ticket, num_rows: int, buffer: BatchBuffer) -> FetchCounts:
        counts = self._source.finish(reading)
        parts = [tensor_of(buffer, table, num_rows, self._dtype) for table in range(buffer.num_tables)]
        x = self._copies.empty((len(parts), *parts[0].shape), self._dtype)
        for part, into in zip(parts, x, strict=True):
            self._copies.send(part, into)
        self._arrive(buffer, x)
        return counts


class DeviceRows(DeviceSource):
    """Tables that lie on the device whole; a batch is chosen there by index (PP-GNN, section 5).

    source: reads the tables once, in order, and is closed then.
    buffer: for that.
    batch_rows: rows that it has room for.
    """

    def __init__(
        self,
        source: RowSource,
        buffer: BatchBuffer,
        batch_rows: int,
        shape: TableShape,
        dtype: str,
        copies: DeviceCopies,
    ) -> None:
        super().__init__(copies)
        num_tables = buffer.num_tables
        self._row_bytes = shape.row_bytes
        try:
            self._tables = copies.empty((num_tables, shape.num_rows, shape.dim), DTYPES[dtype])
            self._load(source, buffer, batch_rows)
        except torch.OutOfMemoryError as error:
            raise ConfigError(
                f"{num_tables} tables of {shape.num_rows} rows do not fit the free memory of {copies.device}; use "
                "place='memory' or place='disk'"
            ) from error
        finally:
            source.close()

    def begin(self, rows: Rows, buffer: BatchBuffer) -> Ticket:
        """See RowSource."""
        return self._thread.submit(self._pick, rows, buffer)

    def _pick(self, rows: Rows, buffer: BatchBuffer) -> FetchCounts:
        self._arrive(buffer, self._copies.pick(self._tables, rows, dim=1))
        num_rows = len(rows) * len(self._tables)
        return FetchCounts(rows_requested=num_rows, rows_hit=num_rows, bytes_needed=num_rows * self._row_bytes)

    def _load(self, source: RowSource, buffer: BatchBuffer, batch_rows: int) -> None:
        for start, stop in row_ranges(self._tables.shape[1], batch_rows):
            source.finish(source.begin(np.arange(start, stop), buffer))
            for table, into in enumerate(self._tables):
                self._copies.send(tensor_of(buffer, table, stop - start, into.dtype), into[start:stop])
        self._copies.finish()


def tensor_of(buffer: BatchBuffer, table: int, num_rows: int, dtype: torch.dtype) -> Tensor:
    """View rows of a buffer's table as (rows, dim)."""
    return torch.from_numpy(buffer.rows(table, num_rows)).view(dtype)
