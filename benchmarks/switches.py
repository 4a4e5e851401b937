"""Switches for the ideas that the stores rest on: each can be turned off, to show what it is worth.

read-ahead: without it, a batch is read only while the consumer waits for it, and the disk idles while the model works.
coalescing: without it, no gap is read, and rows share a read only where their blocks touch.
asynchrony: without it, the disk has one request at a time, as with a thread that waits for each.
sharing: without it, a batch of `shared` reads rows again that another batch is reading.
pipeline: without it, `packed` starts to read a batch, head and rows, only after the one before has been used. Packing
while training is not switched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Lock, Semaphore
from typing import Any

import numpy as np

from diskhop.io.engine import open_engine
from diskhop.protocols import MakeRoom, NodeIds, Rows, SampledBatch, Table
from diskhop.stores.packed.pack_file import PackFile
from diskhop.stores.resources import StoreResources
from diskhop.stores.stores import STORES

# A consumer that stopped requests no more batches, and its pipeline waits for the batch in flight.
_LONGEST_WAIT_SECONDS = 60
_OF_ALL = ("read-ahead", "coalescing", "asynchrony")
IDEAS_OF = {
    "static": _OF_ALL,
    "belady": _OF_ALL,
    "shared": (*_OF_ALL, "sharing"),
    "packed": ("pipeline",),
}
IDEAS = (*_OF_ALL, "sharing", "pipeline")


def without_idea(idea: str, store: str) -> tuple[str, Callable[[], object]]:
    """Add a store without an idea to the registry of this process.

    Returns its name, and a function to call after the work on each batch.
    """
    kind, asked = STORES[store], Semaphore()

    def open_store(table: Table, resources: StoreResources) -> Any:
        if idea == "coalescing":
            return kind.open(table, replace(resources, max_gap_bytes=0))
        if idea == "asynchrony":
            return kind.open(table, replace(resources, engine=open_engine(resources.engine.name, 1).engine))
        if idea == "sharing":
            return _Unshared(kind.open(table, resources))
        if idea == "pipeline":
            return _Sequential(kind.open(table, resources), asked)
        return _OnDemand(kind.open(table, resources), asked)

    name = f"{store} without {idea}"
    STORES[name] = replace(kind, name=name, open=open_store)
    return name, asked.release


class _OnDemand:
    """A store that starts on a batch once it is asked for."""

    def __init__(self, store: Any, asked: Semaphore) -> None:
        self._store = store
        self._asked = asked

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> Any:
        self._asked.acquire(timeout=_LONGEST_WAIT_SECONDS)
        return self._store.submit(batch, make_room)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _Sequential(_OnDemand):
    """The store `packed`: also a chunk of those packed ahead is begun once it is asked for, and alone."""

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> Any:
        # What replay() gave was asked for already.
        submit = self._store.submit if batch.number in self._store._begun else super().submit
        return submit(batch, make_room)

    def replay(self, source: PackFile, numbers: Sequence[int]) -> Iterator[tuple[SampledBatch, float]]:
        for number in numbers:
            self._asked.acquire(timeout=_LONGEST_WAIT_SECONDS)
            yield from self._store.replay(source, [number])


class _Unshared:
    """The store `shared`, whose batches read once more as many rows as others were reading for them."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._lock = Lock()
        self._submitted: dict[Any, NodeIds] = {}
        self._num_twice = 0

    def submit(self, batch: SampledBatch, make_room: MakeRoom) -> Any:
        with self._lock:
            others = list(self._submitted.values())
        ticket = self._store.submit(batch, make_room)
        asked = np.intersect1d(batch.node_ids, np.concatenate(others)) if others else batch.node_ids[:0]
        with self._lock:
            self._submitted[ticket] = batch.node_ids
        return ticket, asked

    def collect(self, ticket: Any) -> Rows:
        of_store, asked = ticket
        rows: Rows = self._store.collect(of_store)
        again = asked[: rows.counts.rows_shared]
        out = np.empty((len(again), self._store.table.row_bytes), np.uint8)
        rows.counts.add_reads(*self._store._scan.join(again, out).wait())
        with self._lock:
            self._num_twice += len(again)
            self._submitted.pop(of_store, None)
        return rows

    def cancel(self, ticket: Any) -> None:
        self._store.cancel(ticket[0])

    def release(self, ticket: Any) -> None:
        self._store.release(ticket[0])

    @property
    def totals(self) -> tuple[int, int, int]:
        read, dropped, held = self._store.totals
        return read + self._num_twice, dropped, held

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
