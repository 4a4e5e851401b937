"""Slots that partitions are trained in: in memory here, on a device in embedding/device/slots.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.partitions.loaded import LoadedPartition
from diskhop.embedding.partitions.store import PartitionStore, Version
from diskhop.system.memory import buffer_bytes

# Moves a partition's bytes, in the thread that reads and writes.
Move = Callable[[], None]


class Slots(Protocol):
    """Memory for partitions, num_slots of them, each of a layout's stride_rows rows.

    Moves that read() and write() return run in another thread, one at a time, in the order of these calls. They start
    after all work with the slot before the call; the caller keeps others from using the slot until they end.
    """

    num_slots: int

    def read(self, partition: int, slot: int, version: Version | None = None) -> Move:
        """Return what reads a version of a partition into a slot, by default the newest."""

    def write(self, partition: int, slot: int) -> Move:
        """Return what writes a slot as the newest version of a partition."""

    def exchange(self, leaving: int, loads: int, slot: int) -> Move:
        """Return what writes a slot as the newest version of a partition, and reads another one into it."""

    def create(self, partition: int, values: NDArray[np.float32]) -> None:
        """Write a new partition: values (rows, dim) and sums of squares of 0. No slot is in use."""

    def clear(self, slot: int) -> None:
        """Set a slot to 0."""

    def copy_rows(self, to: NDArray[np.int64], origin: NDArray[np.int64]) -> None:
        """Copy rows of the slots to other places, sums of squares included."""


class HostSlots:
    """Slots in memory, which the disk is read into.

    values: embeddings, float32 (num_slots * stride_rows, dim).
    squares: Adagrad's sums of squares, float32 (num_slots * stride_rows, state_dim).
    """

    def __init__(self, store: PartitionStore, layout: PartitionLayout, num_slots: int) -> None:
        self._store = store
        self._layout = layout
        self.num_slots = num_slots
        self._values = BufferPool(0).take(num_slots * layout.values_bytes)
        self._squares = BufferPool(0).take(num_slots * layout.squares_bytes)
        self.values: NDArray[np.float32] = self._values.view(np.float32).reshape(-1, layout.dim)
        self.squares: NDArray[np.float32] = self._squares.view(np.float32).reshape(-1, layout.state_dim)

    def read(self, partition: int, slot: int, version: Version | None = None) -> Move:
        """See Slots."""
        loaded = self._loaded(slot)
        return lambda: self._store.read(partition, loaded, version)

    def write(self, partition: int, slot: int) -> Move:
        """See Slots."""
        loaded = self._loaded(slot)
        return lambda: self._store.write(partition, loaded)

    def exchange(self, leaving: int, loads: int, slot: int) -> Move:
        """See Slots."""
        loaded = self._loaded(slot)
        return lambda: self._store.exchange(leaving, loads, loaded)

    def create(self, partition: int, values: NDArray[np.float32]) -> None:
        """See Slots."""
        loaded = self._loaded(0)
        fill_new(loaded, values)
        self._store.write(partition, loaded)

    def clear(self, slot: int) -> None:
        """See Slots."""
        for part in self._loaded(slot):
            part[:] = 0

    def copy_rows(self, to: NDArray[np.int64], origin: NDArray[np.int64]) -> None:
        """See Slots."""
        self.values[to] = self.values[origin]
        self.squares[to] = self.squares[origin]

    def _loaded(self, slot: int) -> LoadedPartition:
        values_bytes, squares_bytes = self._layout.values_bytes, self._layout.squares_bytes
        return LoadedPartition(
            self._values[slot * values_bytes : (slot + 1) * values_bytes],
            self._squares[slot * squares_bytes : (slot + 1) * squares_bytes],
        )


def fill_new(loaded: LoadedPartition, values: NDArray[np.float32]) -> None:
    """Fill the memory of a new partition: values (rows, dim), and 0 for everything else."""
    loaded.squares[:] = 0
    loaded.values[:] = 0
    loaded.values.view(np.float32)[: values.size] = values.reshape(-1)


def slots_bytes(layout: PartitionLayout, num_slots: int) -> int:
    """Return the memory of HostSlots in bytes."""
    return buffer_bytes(num_slots * layout.values_bytes) + buffer_bytes(num_slots * layout.squares_bytes)
