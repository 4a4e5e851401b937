"""A few partitions in memory, and the next on its way while edges of the others are trained (Legend, section 4).

With one slot more than a state has partitions, the next one is read from the start of a state; without it, when the
state is done. One that leaves is written as soon as its buckets are trained, and read until the state is done: for
negatives, which are not changed then. A thread of its own moves one partition after the other, in the order of the
states: so a slot is free, and a partition written, before it is read into or from. What is in memory when never changes
what is trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.partitions.store import LoadedPartition, PartitionStore
from diskhop.system.memory import buffer_bytes

_ROWS_AT_ONCE = 1 << 14


class PartitionBuffer:
    """num_slots partitions of a store; a context, whose end waits for what is on its way.

    values: float32 (num_slots * stride_rows, dim), squares: (the same, state_dim); base() says where a partition's rows
    begin. stall_seconds: waited for the disk so far.
    """

    def __init__(self, store: PartitionStore, layout: PartitionLayout, num_slots: int) -> None:
        self._store = store
        self._layout = layout
        squares_bytes = layout.partition_bytes - layout.values_bytes
        self._values = BufferPool(0).take(num_slots * layout.values_bytes)
        self._squares = BufferPool(0).take(num_slots * squares_bytes)
        self.values: NDArray[np.float32] = self._values.view(np.float32).reshape(-1, layout.dim)
        self.squares: NDArray[np.float32] = self._squares.view(np.float32).reshape(-1, layout.state_dim)
        self._slots: dict[int, int] = {}
        self._leaving: dict[int, int] = {}  # written, or on their way
        self._free = list(range(num_slots))[::-1]
        self._mover = ThreadPoolExecutor(1, thread_name_prefix="partitions")
        self._reads: list[Future[None]] = []
        self._writes: list[Future[None]] = []
        self._to_load: list[int] = []
        self.stall_seconds = 0.0

    def __enter__(self) -> PartitionBuffer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mover.shutdown(wait=True, cancel_futures=True)

    def base(self, partition: int) -> int:
        """The row of `values` that a partition begins at, one that leaves included."""
        slot = self._leaving[partition] if partition in self._leaving else self._slots[partition]
        return slot * self._layout.stride_rows

    def places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of nodes by their rows of `values`."""
        stride = self._layout.stride_rows
        offsets = np.zeros(len(self.values) // stride, np.int64)
        for partition, slot in (*self._slots.items(), *self._leaving.items()):
            offsets[slot] = self._layout.start(partition) - slot * stride
        return rows + offsets[rows // stride]

    def fill(self, partition: int, values: NDArray[np.float32]) -> None:
        """Write a partition that is new: these values (rows, dim), and no squares. Before anything is loaded."""
        held = self._held(0)
        held.squares[:] = 0
        held.values[:] = 0
        held.values.view(np.float32)[: values.size] = values.reshape(-1)
        self._store.write(partition, held)

    def load(self, state: Sequence[int]) -> None:
        """Have these partitions and no others, read now; what else was held has been written by flush()."""
        for partition in [each for each in self._slots if each not in state]:
            self._free.append(self._slots.pop(partition))
        for partition in state:
            if partition not in self._slots:
                self._submit_read(partition)
        self.finish()

    def begin(self, next_state: Sequence[int]) -> None:
        """A state's training begins: read what the next one has besides, as far as there are free slots."""
        self._to_load = [each for each in next_state if each not in self._slots]
        self._read_ahead()

    def release(self, leaving: Sequence[int]) -> None:
        """Buckets of these partitions are trained, and they are not changed any more: write them."""
        for partition in leaving:
            slot = self._leaving[partition] = self._slots.pop(partition)
            self._writes.append(self._mover.submit(self._store.write, partition, self._held(slot)))

    def finish(self) -> None:
        """The state's training is done: wait until the next one is in memory. Raises what moving raised."""
        self._free += self._leaving.values()
        self._leaving.clear()
        self._read_ahead()
        self._wait(self._reads)
        while self._writes and self._writes[0].done():  # in order: one thread does them
            self._writes.pop(0).result()

    def flush(self) -> None:
        """Write all that is held, which stays, and wait until it is written."""
        for partition, slot in self._slots.items():
            self._writes.append(self._mover.submit(self._store.write, partition, self._held(slot)))
        self._wait(self._writes)

    def deal(self, moved: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> None:
        """Move every node to another place; moved: the new places of old ones. What is held has been written before.

        New partitions are put together in all slots but one, through which the old ones pass, over and over. Of all
        partitions the newest version must be committed: the old ones are read while new ones are written.
        """
        started = time.perf_counter()
        versions = self._store.record()
        self._free += self._slots.values()
        self._slots.clear()
        *slots, passing = range(len(self.values) // self._layout.stride_rows)
        num_partitions = self._layout.num_partitions
        for first in range(0, num_partitions, len(slots)):
            made = dict(zip(range(first, num_partitions), slots, strict=False))
            for slot in made.values():
                for part in self._held(slot):
                    part[:] = 0
            for partition in range(num_partitions):
                self._store.read(partition, self._held(passing), versions[partition])
                self._move_rows(partition, passing, made, moved)
            for partition, slot in made.items():
                self._store.write(partition, self._held(slot))
        self.stall_seconds += time.perf_counter() - started

    def _move_rows(
        self,
        partition: int,
        passing: int,
        made: Mapping[int, int],
        moved: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    ) -> None:
        """Copy those of a partition's rows, which pass through a slot, that go to partitions made in other slots."""
        layout = self._layout
        first, num_rows, stride = layout.start(partition), layout.num_rows(partition), layout.stride_rows
        for start in range(0, num_rows, _ROWS_AT_ONCE):
            old = np.arange(start, min(start + _ROWS_AT_ONCE, num_rows))
            partitions, rows = layout.locate(moved(first + old))
            for target, slot in made.items():
                chosen = partitions == target
                to, origin = slot * stride + rows[chosen], passing * stride + old[chosen]
                self.values[to] = self.values[origin]
                self.squares[to] = self.squares[origin]

    def _read_ahead(self) -> None:
        while self._to_load and self._free:
            self._submit_read(self._to_load.pop(0))

    def _submit_read(self, partition: int) -> None:
        slot = self._free.pop()
        self._slots[partition] = slot
        self._reads.append(self._mover.submit(self._store.read, partition, self._held(slot)))

    def _wait(self, moves: list[Future[None]]) -> None:
        started = time.perf_counter()
        for move in moves:
            move.result()
        moves.clear()
        self.stall_seconds += time.perf_counter() - started

    def _held(self, slot: int) -> LoadedPartition:
        values_bytes = self._layout.values_bytes
        squares_bytes = self._layout.partition_bytes - values_bytes
        return LoadedPartition(
            self._values[slot * values_bytes : (slot + 1) * values_bytes],
            self._squares[slot * squares_bytes : (slot + 1) * squares_bytes],
        )


def slots_bytes(layout: PartitionLayout, num_slots: int) -> int:
    """Memory of a buffer."""
    squares_bytes = layout.partition_bytes - layout.values_bytes
    return buffer_bytes(num_slots * layout.values_bytes) + buffer_bytes(num_slots * squares_bytes)
