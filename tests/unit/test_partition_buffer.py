"""Moves of partitions begin before the caller goes on to train, which would keep Python's lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from diskhop._native import Engine
from diskhop.embedding.partitions.buffer import PartitionBuffer
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.partitions.slots import HostSlots, Move
from diskhop.embedding.partitions.store import PartitionStore, Version


class LateThread:
    """Runs each call a while after it is given."""

    def __init__(self) -> None:
        self.num_given = self.num_begun = 0

    def submit(self, call: Callable[[], None]) -> Future[None]:
        done: Future[None] = Future()

        def run() -> None:
            self.num_begun += 1
            call()
            done.set_result(None)

        self.num_given += 1
        threading.Timer(0.1, run).start()
        return done


class SlowSlots(HostSlots):
    """Slots whose moves wait for `go`."""

    go = threading.Event()

    def read(self, partition: int, slot: int, version: Version | None = None) -> Move:
        def move() -> None:
            assert self.go.wait(60)

        return move


def test_a_move_begins_before_its_caller_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = PartitionLayout(40, 4, 2, 1)
    store = PartitionStore(tmp_path / "partitions", layout, Engine("threads", 4))
    slots = SlowSlots(store, layout, 2)
    with PartitionBuffer(store, layout, slots) as buffer, monkeypatch.context() as patch:
        thread = LateThread()
        patch.setattr(buffer, "_io_thread", thread)
        buffer.begin([0])
        assert (thread.num_given, thread.num_begun) == (1, 1)
        # The thread is busy now: nobody waits until it has time for the next one.
        buffer.begin([0, 1])
        assert (thread.num_given, thread.num_begun) == (2, 1)
        slots.go.set()
        buffer.finish()
        assert thread.num_begun == 2
