"""Claims about moves of partitions: what is written is what is read back, piece by piece, and faults name the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diskhop._native import BufferPool, Engine, FaultInjector, FaultRule
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.partitions.loaded import PAGE_BYTES, PIECE_BYTES, LoadedPartition
from diskhop.embedding.partitions.store import PartitionStore
from diskhop.errors import ReadError, WriteError
from tests.graphs import memory_folder

# 12 pieces: more than are in flight each way.
LAYOUT = PartitionLayout(2 * 60_000, 2, 100, 100)
REQUEST_BYTES = 1 << 20


def filled(seed: int) -> LoadedPartition:
    loaded = LoadedPartition(BufferPool(0).take(LAYOUT.values_bytes), BufferPool(0).take(LAYOUT.squares_bytes))
    for part in loaded:
        part.view(np.uint32)[:] = seed * np.arange(part.nbytes // 4, dtype=np.uint32)
    return loaded


def same(one: LoadedPartition, other: LoadedPartition) -> bool:
    return all(np.array_equal(each, another) for each, another in zip(one, other, strict=True))


def test_pieces_are_read_while_later_ones_are_written(tmp_path: Path) -> None:
    injector = FaultInjector([FaultRule("io_error", "writes", LAYOUT.partition_bytes // REQUEST_BYTES)])
    with memory_folder(tmp_path) as folder:
        healthy = PartitionStore(folder / "partitions", LAYOUT, Engine("threads", 4))
        healthy.create()
        second, memory = filled(2), filled(1)
        healthy.write(1, second)
        store = PartitionStore(folder / "partitions", LAYOUT, Engine("threads", 4, injector))
        store.learn(healthy.take_written())
        # One of the last writes fails. What is written before has been read already.
        with pytest.raises(WriteError, match=r"00000-a\.bin"):
            store.exchange(0, 1, memory)
        assert np.array_equal(memory.values[:PIECE_BYTES], second.values[:PIECE_BYTES])
        assert np.array_equal(memory.squares[-PAGE_BYTES:], filled(1).squares[-PAGE_BYTES:])


def test_what_an_exchange_writes_and_reads_is_whole(tmp_path: Path) -> None:
    with memory_folder(tmp_path) as folder:
        store = PartitionStore(folder / "partitions", LAYOUT, Engine("threads", 4))
        store.create()
        first, second, memory = filled(1), filled(2), filled(1)
        store.write(1, second)
        store.exchange(0, 1, memory)
        assert same(memory, second)
        assert (store.partitions_written, store.partitions_read) == (2, 1)
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
