"""Claims about moves of partitions: what is written is what is read back, piece by piece, and faults name the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from diskhop._native import BufferPool, Engine
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.partitions.moves import LoadedPartition
from diskhop.embedding.partitions.store import PartitionStore
from diskhop.errors import ReadError
from tests.graphs import memory_folder

# 12 pieces: more than are in flight each way.
LAYOUT = PartitionLayout(2 * 60_000, 2, 100, 100)
NUM_PIECES = 12


class RecordingEngine:
    """Records when pieces are written and read, and waited for."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._engine = Engine("threads", 4)
        self._kinds: dict[int, str] = {}

    def submit_write(self, *arguments: Any) -> int:
        return self._submitted("write", self._engine.submit_write(*arguments))

    def submit_read(self, *arguments: Any) -> int:
        return self._submitted("read", self._engine.submit_read(*arguments))

    def wait(self, ticket: int) -> None:
        self._engine.wait(ticket)
        self.events.append(f"{self._kinds[ticket]} done")

    def _submitted(self, kind: str, ticket: int) -> int:
        self.events.append(kind)
        self._kinds[ticket] = kind
        return ticket


def filled(seed: int) -> LoadedPartition:
    loaded = LoadedPartition(BufferPool(0).take(LAYOUT.values_bytes), BufferPool(0).take(LAYOUT.squares_bytes))
    for part in loaded:
        part.view(np.uint32)[:] = seed * np.arange(part.nbytes // 4, dtype=np.uint32)
    return loaded


def same(one: LoadedPartition, other: LoadedPartition) -> bool:
    return all(np.array_equal(each, another) for each, another in zip(one, other, strict=True))


def test_a_piece_is_read_into_the_memory_of_one_that_is_written(tmp_path: Path) -> None:
    engine = RecordingEngine()
    with memory_folder(tmp_path) as folder:
        store = PartitionStore(folder / "partitions", LAYOUT, cast(Engine, engine))
        store.create()
        first, second, memory = filled(1), filled(2), filled(3)
        store.write(1, second)
        engine.events.clear()
        for part, value in zip(memory, first, strict=True):
            part[:] = value
        store.exchange(0, 1, memory)
        assert same(memory, second)
        assert (store.partitions_written, store.partitions_read) == (2, 1)
        counts = {kind: engine.events.count(kind) for kind in ("write", "write done", "read", "read done")}
        assert set(counts.values()) == {NUM_PIECES}
        progress = [
            [engine.events[: place + 1].count(kind) for kind in ("write", "write done", "read", "read done")]
            for place in range(len(engine.events))
        ]
        # Reads begin while later pieces are still to be written, and only of pieces that are.
        assert all(written >= read for _, written, read, _ in progress)
        assert any(reads and begun < NUM_PIECES for begun, _, reads, _ in progress)
        # What was written is complete, too.
        store.read(0, memory)
        assert same(memory, first)


def test_a_damaged_partition_is_named_and_the_other_is_written(tmp_path: Path) -> None:
    with memory_folder(tmp_path) as folder:
        store = PartitionStore(folder / "partitions", LAYOUT, Engine("threads", 4))
        store.create()
        first, memory = filled(1), filled(1)
        store.write(1, filled(2))
        path = folder / "partitions" / "00001-a.bin"
        content = np.memmap(path, np.uint8, "r+")
        content[-1] ^= 1
        content.flush()
        with pytest.raises(ReadError, match=r"00001-a\.bin: is damaged"):
            store.exchange(0, 1, memory)
        store.read(0, memory)
        assert same(memory, first)
