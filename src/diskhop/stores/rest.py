"""A store for the rest of a table: the rows that lie nowhere else. A batch's other rows never reach it.

Whoever has the other rows puts the batch together. Counts are of the whole batch: the other rows are hits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from diskhop.policies.device_rows import AddressTable, rest_of
from diskhop.protocols import (
    AccessTrace,
    DistinctRows,
    FeatureStore,
    LookAheadStore,
    MakeRoom,
    NodeIds,
    Rows,
    SampledBatch,
    TableGroup,
)
from diskhop.stores.resources import ReplayStore

_NO_NODES = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class RestTicket:
    """A submitted batch.

    inner: the store's ticket.
    num_elsewhere, bytes_elsewhere: rows of the batch that the store does not fetch, and their bytes.
    """

    inner: Any
    num_elsewhere: int
    bytes_elsewhere: int


class RestStore:
    """Passes the rest of each batch to a store; see FeatureStore. Its rows are in the order of the batch's row_ids.

    addresses: see address_table(); the store has the rows without an address.
    """

    def __init__(self, inner: FeatureStore[Any], addresses: AddressTable) -> None:
        self.table = inner.table
        self._inner = inner
        self._addresses = addresses

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> RestTicket:
        """See FeatureStore."""
        rest = self._rest_of(batch)
        bytes_elsewhere = self._bytes_of(batch.row_ids) - self._bytes_of(rest.row_ids)
        return RestTicket(self._inner.submit(rest, make_room), batch.num_rows - rest.num_rows, bytes_elsewhere)

    def collect(self, ticket: RestTicket) -> Rows:
        """See FeatureStore."""
        rows = self._inner.collect(ticket.inner)
        rows.counts.rows_requested += ticket.num_elsewhere
        rows.counts.rows_hit += ticket.num_elsewhere
        rows.counts.bytes_needed += ticket.bytes_elsewhere
        return rows

    def cancel(self, ticket: RestTicket) -> None:
        """See FeatureStore."""
        self._inner.cancel(ticket.inner)

    def release(self, ticket: RestTicket) -> None:
        """See FeatureStore."""
        self._inner.release(ticket.inner)

    def close(self) -> None:
        """See FeatureStore."""
        self._inner.close()

    def _bytes_of(self, row_ids: NodeIds) -> int:
        """Return the bytes of rows of the table; of a group, those of the types that have features."""
        if not isinstance(self.table, TableGroup):
            return len(row_ids) * self.table.row_bytes
        return sum(len(part.find(row_ids)[0]) * part.table.row_bytes for part in self.table.parts)

    def _rest_of(self, batch: SampledBatch) -> SampledBatch:
        """Return a batch whose distinct rows are those that the store has."""
        return replace(batch, distinct=DistinctRows(rest_of(self._addresses, batch.row_ids), _NO_NODES))


class RestAheadStore(RestStore):
    """The same for a store that looks ahead; see LookAheadStore."""

    def __init__(self, inner: LookAheadStore[Any], addresses: AddressTable) -> None:
        super().__init__(inner, addresses)
        self.growth = inner.growth
        self._ahead = inner

    def start_pass(self) -> None:
        """See LookAheadStore."""
        self._ahead.start_pass()

    def replay(self, source: Any, numbers: Sequence[int]) -> Iterator[tuple[SampledBatch, float]]:
        """See ReplayStore; the batches have all their nodes."""
        return cast(ReplayStore[Any], self._ahead).replay(source, numbers)

    def make_room(self, batch: SampledBatch) -> None:
        """See LookAheadStore."""
        self._ahead.make_room(self._rest_of(batch))

    def free_disk(self) -> None:
        """See LookAheadStore."""
        self._ahead.free_disk()

    def look_ahead(self, trace: AccessTrace, keep_on: Callable[[], None]) -> None:
        """See LookAheadStore."""
        self._ahead.look_ahead(_RestTrace(trace, self._addresses), keep_on)


@dataclass(frozen=True, slots=True, eq=False)
class _RestTrace:
    """A trace without the rows that have addresses; see AccessTrace."""

    trace: AccessTrace
    addresses: AddressTable

    def __len__(self) -> int:
        return len(self.trace)

    def node_ids(self, index: int) -> NodeIds:
        """See AccessTrace."""
        return rest_of(self.addresses, self.trace.node_ids(index))


def rest_store(inner: FeatureStore[Any], addresses: AddressTable, *, looks_ahead: bool) -> RestStore:
    """Return a store that passes the rest of each batch to another one. looks_ahead: that one is a LookAheadStore."""
    if looks_ahead:
        return RestAheadStore(cast(LookAheadStore[Any], inner), addresses)
    return RestStore(inner, addresses)
