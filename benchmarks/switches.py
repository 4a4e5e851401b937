"""The two ideas that the stores rest on, each of which a run can do without, so that it shows what the idea is worth.

read-ahead: otherwise a batch's rows are read while the consumer waits for them, and the disk rests while it works.
coalescing: otherwise no gap is read over, and rows share a read only where their blocks touch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Semaphore
from typing import Any

from diskhop.features import STORES
from diskhop.features.resources import StoreResources
from diskhop.protocols import MakeRoom, SampledBatch, Table

IDEAS = ("read-ahead", "coalescing")
# A consumer that was broken off asks no more, and its pipeline waits for the batch on its way in.
_LONGEST_WAIT_SECONDS = 60


def switch_off(idea: str, store: str) -> Callable[[], object]:
    """From now on the store is opened without it, in this process. Returns what to call after each batch's work."""
    kind, asked = STORES[store], Semaphore()

    def open_store(table: Table, resources: StoreResources) -> Any:
        if idea == "coalescing":
            return kind.open(table, replace(resources, max_gap_bytes=0))
        return _OnDemand(kind.open(table, resources), asked)

    STORES[store] = replace(kind, open=open_store)
    return asked.release


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
