"""Feature stores of a graph with types: one store per node type, all of one kind, which share a budget.

A batch of merged rows is split by type; every store sees the rows of its own table. group_share.py divides the memory
between the types, and predicts their costs together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from diskhop.counters import FetchCounts
from diskhop.protocols import (
    AccessTrace,
    FeatureStore,
    GroupRows,
    LookAheadStore,
    MakeRoom,
    NodeIds,
    Rows,
    SampledBatch,
    TableGroup,
    TablePart,
)
from diskhop.stores.group_share import GroupShare
from diskhop.stores.kind import StoreKind
from diskhop.stores.resources import StoreResources


@dataclass(slots=True, eq=False)
class GroupTicket:
    """Tickets of the stores, in their order; None where a batch is not submitted yet."""

    tickets: list[Any] = field(default_factory=list)


class StoreGroup:
    """Stores of several tables as a store of merged rows.

    table: the group.
    stores: one per part of the group.
    """

    def __init__(self, table: TableGroup, stores: Sequence[FeatureStore[Any]]) -> None:
        self.table = table
        self._stores = tuple(stores)

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> GroupTicket:
        """See FeatureStore. Room is made once for all types: each store asks for its own within the call of another."""
        ticket = GroupTicket([None] * len(self._stores))
        pairs = list(zip(self._stores, self._batches(batch), strict=True))

        def submit_from(index: int, others_bytes: int) -> None:
            if index == len(pairs):
                make_room(others_bytes)
                return
            store, part = pairs[index]

            def admit(num_bytes: int) -> None:
                submit_from(index + 1, others_bytes + num_bytes)

            ticket.tickets[index] = store.submit(part, admit)

        try:
            submit_from(0, 0)
        except BaseException:
            self.release(ticket)
            raise
        return ticket

    def collect(self, ticket: GroupTicket) -> Rows:
        """See FeatureStore."""
        counts = FetchCounts()
        parts = {}
        for part, store, each in zip(self.table.parts, self._stores, ticket.tickets, strict=True):
            rows = parts[part.name] = store.collect(each)
            counts.add(rows.counts)
        num_rows = sum(rows.num_rows for rows in parts.values())
        return GroupRows(num_rows=num_rows, row_bytes=0, segments=(), counts=counts, parts=parts)

    def cancel(self, ticket: GroupTicket) -> None:
        """See FeatureStore."""
        self._for_each(ticket, lambda store, each: store.cancel(each))

    def release(self, ticket: GroupTicket) -> None:
        """See FeatureStore."""
        self._for_each(ticket, lambda store, each: store.release(each))

    def close(self) -> None:
        """See FeatureStore."""
        with contextlib.ExitStack() as stack:
            for store in self._stores:
                stack.callback(store.close)

    def _batches(self, batch: SampledBatch) -> list[SampledBatch]:
        """Return a batch of the rows of each part."""
        return [replace(batch, node_ids=part.find(batch.row_ids)[1], distinct=None) for part in self.table.parts]

    def _for_each(self, ticket: GroupTicket, act: Callable[[FeatureStore[Any], Any], None]) -> None:
        """Act on each submitted ticket, also after an error with another one."""
        with contextlib.ExitStack() as stack:
            for store, each in zip(self._stores, ticket.tickets, strict=True):
                if each is not None:
                    stack.callback(act, store, each)


class LookAheadGroup(StoreGroup):
    """The same for stores that look ahead."""

    @property
    def growth(self) -> float:
        """See LookAheadStore."""
        return min(store.growth for store in self._looking_ahead())

    def start_pass(self) -> None:
        """See LookAheadStore."""
        for store in self._looking_ahead():
            store.start_pass()

    def make_room(self, batch: SampledBatch) -> None:
        """See LookAheadStore."""
        for store, part in zip(self._looking_ahead(), self._batches(batch), strict=True):
            store.make_room(part)

    def free_disk(self) -> None:
        """See LookAheadStore."""
        for store in self._looking_ahead():
            store.free_disk()

    def look_ahead(self, trace: AccessTrace, keep_on: Callable[[], None]) -> None:
        """See LookAheadStore."""
        for store, part in zip(self._looking_ahead(), self.table.parts, strict=True):
            store.look_ahead(PartTrace(trace, part), keep_on)

    def _looking_ahead(self) -> tuple[LookAheadStore[Any], ...]:
        return cast(tuple[LookAheadStore[Any], ...], self._stores)


class PartTrace:
    """The rows of one part that the batches of a trace of merged rows will request; see AccessTrace."""

    def __init__(self, trace: AccessTrace, part: TablePart) -> None:
        self._trace = trace
        self._part = part

    def __len__(self) -> int:
        return len(self._trace)

    def node_ids(self, index: int) -> NodeIds:
        """See AccessTrace."""
        return self._part.find(self._trace.node_ids(index))[1]


def open_group(kind: StoreKind, table: TableGroup, resources: StoreResources) -> StoreGroup:
    """Open a store of a kind for each part of a group."""
    share = resources.share
    assert isinstance(share, GroupShare)
    stores: list[FeatureStore[Any]] = []
    with contextlib.ExitStack() as opened:
        for part in table.parts:
            own = share.parts[part.name]
            scratch = None if resources.scratch is None else resources.scratch / part.name
            if scratch is not None:
                scratch.mkdir(exist_ok=True)
            stores.append(
                kind.open(
                    part.table,
                    replace(
                        resources,
                        share=own.share,
                        staging_bytes=own.staging_bytes,
                        pinned=None if resources.pinned is None else np.sort(part.find(resources.pinned)[1]),
                        scratch=scratch,
                    ),
                )
            )
            opened.callback(stores[-1].close)
        opened.pop_all()
    return (LookAheadGroup if kind.looks_ahead else StoreGroup)(table, stores)
