"""Where hop tables live while a model trains on them, and how their rows are shuffled (PP-GNN, section 5).

Pure functions. Tables that fit into the memory of a device, or else of the CPU, are loaded whole, and every row is
shuffled individually (SGD-RR). Larger tables are read from disk in shuffled chunks (SGD-CR).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from diskhop.budget import format_bytes
from diskhop.hops.read.order import Shuffle
from diskhop.hops.read.rows import DiskRows, MemoryRows, table_bytes
from diskhop.hops.tables import TableShape
from diskhop.system.memory import buffer_bytes

Place = Literal["device", "memory", "disk"]

_TABLES = "hop tables"
# Names of memory of which the processes of a machine have one copy.
SHARED = frozenset({_TABLES})


class DeviceRoom(NamedTuple):
    """Memory of a device. tables_bytes: needed by tables and batches there. free_bytes: that they may take."""

    tables_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where tables live and how training rows are shuffled.

    place: device, memory or disk.
    shuffle: none, rows or chunks.
    reason: why, in one line.
    """

    place: Place
    shuffle: Shuffle
    reason: str


def place_tables(
    *,
    num_bytes: int,
    memory_bytes: int,
    model_bytes: int = 0,
    place: Place | None = None,
    is_requested: bool = True,
    shuffle: Shuffle | None = None,
    device: DeviceRoom | None = None,
) -> Placement:
    """Choose where tables of num_bytes live, including the loader's other memory.

    num_bytes, memory_bytes, model_bytes: of all processes of a machine.
    memory_bytes: unreserved bytes of the budget. model_bytes: memory of one training step, measured; 0 without a model.
    place, shuffle: requested by the user; None to choose. is_requested: False for a place that is only compared.
    device: that batches are delivered on; None: they stay in memory.
    """
    step = f" and one training step {format_bytes(model_bytes)}" if model_bytes else ""
    taken = f"tables take {format_bytes(num_bytes)}{step}"
    if place is not None:
        placed = f"{place} (requested)" if is_requested else place
    elif device is not None and device.tables_bytes <= device.free_bytes:
        place, placed = "device", f"device (tables take {format_bytes(device.tables_bytes)} of it)"
    elif num_bytes + model_bytes <= memory_bytes:
        place, placed = "memory", f"memory ({taken}; {format_bytes(memory_bytes)} are free)"
    else:
        place, placed = "disk", f"disk ({taken}; only {format_bytes(memory_bytes)} are free)"
    if shuffle is not None:
        shuffled = f"shuffle {shuffle} (requested)"
    elif place == "disk":
        shuffle, shuffled = "chunks", "shuffling chunks"
    else:
        shuffle, shuffled = "rows", "shuffling rows"
    return Placement(place=place, shuffle=shuffle, reason=f"placement {placed}; {shuffled}")


def device_bytes(shape: TableShape, num_tables: int, batch_size: int, num_buffers: int = 2) -> int:
    """Return the memory of a device that tables take there, with a batch per buffer and the one that is used."""
    batch_rows = (num_buffers + 1) * min(batch_size, shape.num_rows)
    return num_tables * (shape.num_rows + batch_rows) * shape.row_bytes


def loader_bytes(
    shape: TableShape, num_tables: int, batch_size: int, place: Place, num_buffers: int = 2
) -> dict[str, int]:
    """Return the memory of a loader of num_tables tables by name, without row ids and their order."""
    source = MemoryRows if place == "memory" else DiskRows
    batch_rows = min(batch_size, shape.num_rows)
    resident = {_TABLES: buffer_bytes(num_tables * table_bytes(shape.num_rows, shape))}
    # A device's tables are read as those on disk are, batch by batch.
    return {
        **(resident if place == "memory" else {}),
        "hop batches": num_buffers * buffer_bytes(num_tables * table_bytes(batch_rows, shape)),
        "hop staging": source.staging_bytes(shape),
    }
