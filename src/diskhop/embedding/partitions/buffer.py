"""Buffer of partitions in memory, which prefetches the next one during training (Legend, section 4).

A *state* is the set of partitions that are trained together. With one slot more than a state has partitions, the next
partition is prefetched from the start of a state; otherwise it is read at the end. A partition that is released is
written as soon as its buckets are trained. Until the state ends it still provides negatives, which are not updated.
One that is exchanged is written, too, and the next one is read into its slot, while the other buckets of the state are
trained. One background thread reads and writes partitions in the order of these calls, so that a slot is free before a
read and a partition is written before it is read again. Timing never changes what is trained.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import zip_longest
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.partitions.slots import Move, Slots
from diskhop.embedding.partitions.store import PartitionStore

_ROWS_AT_ONCE = 1 << 14


class PartitionBuffer:
    """The partitions of a store that are in slots. Leaving the context waits for reads and writes in flight.

    slots: what they are trained in.
    stall_seconds: seconds waited for the disk so far.
    """

    def __init__(self, store: PartitionStore, layout: PartitionLayout, slots: Slots) -> None:
        self._store = store
        self._layout = layout
        self._memory = slots
        self._slots: dict[int, int] = {}
        self._leaving: dict[int, int] = {}  # written, or the write is in flight
        self._free = list(range(slots.num_slots))[::-1]
        self._io_thread = ThreadPoolExecutor(1, thread_name_prefix="partitions")
        self._reads: list[Future[None]] = []
        self._writes: list[Future[None]] = []
        self._to_load: list[int] = []
        self.stall_seconds = 0.0

    def __enter__(self) -> PartitionBuffer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._io_thread.shutdown(wait=True, cancel_futures=True)

    def base(self, partition: int) -> int:
        """Return the first row of a partition in the slots; includes partitions that are being evicted."""
        slot = self._leaving[partition] if partition in self._leaving else self._slots[partition]
        return slot * self._layout.stride_rows

    def places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of the nodes at rows of the slots."""
        return rows + self.offsets()[rows // self._layout.stride_rows]

    def offsets(self) -> NDArray[np.int64]:
        """Return what is added to the rows of each slot to get places, int64 (slots)."""
        offsets = np.zeros(self._memory.num_slots, np.int64)
        for partition, slot in (*self._slots.items(), *self._leaving.items()):
            offsets[slot] = self._layout.start(partition) - slot * self._layout.stride_rows
        return offsets

    def fill(self, partition: int, values: NDArray[np.float32]) -> None:
        """Write a new partition: values (rows, dim) and sums of squares of 0. Call this before load()."""
        self._memory.create(partition, values)

    def load(self, state: Sequence[int]) -> None:
        """Read the partitions of a state and drop all others, which flush() must have written."""
        for partition in [each for each in self._slots if each not in state]:
            self._free.append(self._slots.pop(partition))
        for partition in state:
            if partition not in self._slots:
                self._submit_read(partition)
        self.finish()

    def begin(self, next_state: Sequence[int]) -> None:
        """Begin training a state: prefetch the next state's other partitions into free slots."""
        self._to_load = [each for each in next_state if each not in self._slots]
        self._prefetch()

    def release(self, leaving: Sequence[int]) -> None:
        """Write partitions that are not updated any more in this state, and evict them when it ends."""
        for partition in leaving:
            slot = self._leaving[partition] = self._slots.pop(partition)
            self._submit(self._writes, self._memory.write(partition, slot))

    def exchange(self, leaving: Sequence[int], next_state: Sequence[int]) -> None:
        """Write partitions that nothing uses any more in this state, and read the next state's others in their place.

        next_state: empty if nothing is read yet.
        """
        to_load = [each for each in next_state if each not in self._slots]
        for partition, loads in zip_longest(leaving, to_load[: len(leaving)]):
            slot = self._slots.pop(partition)
            if loads is None:
                self._free.append(slot)
                self._submit(self._writes, self._memory.write(partition, slot))
            else:
                self._slots[loads] = slot
                self._submit(self._reads, self._memory.exchange(partition, loads, slot))
        self._to_load = to_load[len(leaving) :]
        self._prefetch()

    def finish(self) -> None:
        """End training a state: wait until the next state is in memory. Raises errors of reads and writes."""
        self._free += self._leaving.values()
        self._leaving.clear()
        self._prefetch()
        self._wait(self._reads)
        while self._writes and self._writes[0].done():  # completed in order by one thread
            self._writes.pop(0).result()

    def flush(self) -> None:
        """Write all partitions in memory, which stay there, and wait for the writes."""
        for partition, slot in self._slots.items():
            self._submit(self._writes, self._memory.write(partition, slot))
        self.wait_for_writes()

    def wait_for_writes(self) -> None:
        """Wait until all evicted partitions are written. Raises errors of writes."""
        self._wait(self._writes)

    def repartition(self, moved: Callable[[NDArray[np.int64]], NDArray[np.int64]], partitions: Sequence[int]) -> None:
        """Move every node to a new place. Call flush() before, and commit the newest version of all partitions.

        moved: maps old places to new places.
        partitions: new partitions that this process assembles.
        New partitions are assembled in all slots but one. For each set of new partitions, all committed partitions are
        read through the remaining slot.
        """
        started = time.perf_counter()
        versions = self._store.record()
        self._free += self._slots.values()
        self._slots.clear()
        *slots, reading = range(self._memory.num_slots)
        num_partitions = self._layout.num_partitions
        for first in range(0, len(partitions), len(slots)):
            assembled = dict(zip(partitions[first:], slots, strict=False))
            for slot in assembled.values():
                self._memory.clear(slot)
            for partition in range(num_partitions):
                self._memory.read(partition, reading, versions[partition])()
                self._move_rows(partition, reading, assembled, moved)
            for partition, slot in assembled.items():
                self._memory.write(partition, slot)()
        self.stall_seconds += time.perf_counter() - started

    def _move_rows(
        self,
        partition: int,
        reading: int,
        assembled: Mapping[int, int],
        moved: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    ) -> None:
        """Copy rows of an old partition to the new partitions that are being assembled.

        reading: slot of the old partition.
        assembled: slot of each new partition.
        """
        layout = self._layout
        first, num_rows, stride = layout.start(partition), layout.num_rows(partition), layout.stride_rows
        for start in range(0, num_rows, _ROWS_AT_ONCE):
            old = np.arange(start, min(start + _ROWS_AT_ONCE, num_rows))
            partitions, rows = layout.locate(moved(first + old))
            for target, slot in assembled.items():
                chosen = partitions == target
                to, origin = slot * stride + rows[chosen], reading * stride + old[chosen]
                self._memory.copy_rows(to, origin)

    def _prefetch(self) -> None:
        while self._to_load and self._free:
            self._submit_read(self._to_load.pop(0))

    def _submit_read(self, partition: int) -> None:
        slot = self._free.pop()
        self._slots[partition] = slot
        self._submit(self._reads, self._memory.read(partition, slot))

    def _submit(self, moves: list[Future[None]], move: Move) -> None:
        """Give a move to the thread. One that has nothing else to do has begun when this returns.

        Otherwise the caller, who trains next, would keep Python's lock for up to 5 ms, and the disk would be idle.
        """
        begun = threading.Event()

        def begin() -> None:
            begun.set()
            move()

        is_idle = all(each.done() for each in (*self._reads, *self._writes))
        moves.append(self._io_thread.submit(begin))
        if is_idle:
            begun.wait()

    def _wait(self, moves: list[Future[None]]) -> None:
        started = time.perf_counter()
        for move in moves:
            move.result()
        moves.clear()
        self.stall_seconds += time.perf_counter() - started
