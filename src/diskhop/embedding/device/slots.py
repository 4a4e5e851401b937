"""Slots that partitions are trained in on a device (Legend, sections 3 and 4).

A partition passes through one partition's memory between the disk and its slot, in both directions. With one slot more
than a state has partitions, the next one is on the device before the state ends: the thread that moves partitions reads
and copies while steps run.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop._native import BufferPool
from diskhop.budget import format_bytes
from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.partitions.loaded import LoadedPartition
from diskhop.embedding.partitions.slots import Move, fill_new
from diskhop.embedding.partitions.store import PartitionStore, Version
from diskhop.errors import TrainingError
from diskhop.pipeline.transfer import RING_BYTES, DeviceCopies
from diskhop.system.memory import buffer_bytes


class DeviceSlots:
    """Slots on a device; see Slots.

    values: embeddings, float32 (num_slots * stride_rows, dim), on the device.
    squares: Adagrad's sums of squares, float32 (num_slots * stride_rows, state_dim), on the device.
    copies: copies of this object alone.
    """

    def __init__(self, store: PartitionStore, layout: PartitionLayout, num_slots: int, copies: DeviceCopies) -> None:
        self._store = store
        self._layout = layout
        self._copies = copies
        self.num_slots = num_slots
        num_rows, device = num_slots * layout.stride_rows, copies.device
        try:
            self.values = torch.empty(num_rows, layout.dim, device=device)
            self.squares = torch.empty(num_rows, layout.state_dim, device=device)
        except torch.OutOfMemoryError as error:
            raise TrainingError(
                f"{num_slots} partitions of {format_bytes(layout.partition_bytes)} do not fit the free memory of "
                f"{device}; use a smaller --device-memory, or --device cpu"
            ) from error
        self._passage = LoadedPartition(
            BufferPool(0).take(layout.values_bytes), BufferPool(0).take(layout.squares_bytes)
        )

    def read(self, partition: int, slot: int, version: Version | None = None) -> Move:
        """See Slots."""
        free = self._copies.mark()

        def move() -> None:
            self._store.read(partition, self._passage, version)
            self._copies.wait_for(free)
            for source, target in zip(self._in_passage(), self._of_slot(slot), strict=True):
                self._copies.send(source, target)
            arrival = self._copies.finish()
            if arrival.sent is not None:
                arrival.sent.synchronize()

        return move

    def write(self, partition: int, slot: int) -> Move:
        """See Slots."""
        trained = self._copies.mark()

        def move() -> None:
            self._copies.wait_for(trained)
            for target, source in zip(self._in_passage(), self._of_slot(slot), strict=True):
                self._copies.fetch(source, target)
            self._store.write(partition, self._passage)

        return move

    def exchange(self, leaving: int, loads: int, slot: int) -> Move:
        """See Slots."""
        write, read = self.write(leaving, slot), self.read(loads, slot)

        def move() -> None:
            write()
            read()

        return move

    def create(self, partition: int, values: NDArray[np.float32]) -> None:
        """See Slots."""
        fill_new(self._passage, values)
        self._store.write(partition, self._passage)

    def clear(self, slot: int) -> None:
        """See Slots."""
        for part in self._of_slot(slot):
            part.zero_()

    def copy_rows(self, to: NDArray[np.int64], origin: NDArray[np.int64]) -> None:
        """See Slots."""
        targets, origins = (torch.from_numpy(each).to(self._copies.device) for each in (to, origin))
        for memory in (self.values, self.squares):
            memory.index_copy_(0, targets, memory.index_select(0, origins))

    def _in_passage(self) -> tuple[Tensor, Tensor]:
        layout, (values, squares) = self._layout, self._passage
        return (
            torch.from_numpy(values.view(np.float32)).view(-1, layout.dim),
            torch.from_numpy(squares.view(np.float32)).view(-1, layout.state_dim),
        )

    def _of_slot(self, slot: int) -> tuple[Tensor, Tensor]:
        rows = slice(slot * self._layout.stride_rows, (slot + 1) * self._layout.stride_rows)
        return self.values[rows], self.squares[rows]


def passage_bytes(layout: PartitionLayout) -> int:
    """Return the memory of DeviceSlots in bytes, its ring included."""
    return buffer_bytes(layout.values_bytes) + buffer_bytes(layout.squares_bytes) + RING_BYTES
