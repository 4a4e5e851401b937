"""Where hop tables are while a model trains on them, and how their rows are shuffled then (PP-GNN, section 5).

Pure: what is measured or known before comes in. Device memory is best, then the host's, both with every row shuffled by
itself (SGD-RR); tables that fit neither are read from the disk in chunks (SGD-CR).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from diskhop.budget import format_bytes
from diskhop.hops.read.order import Shuffle
from diskhop.hops.read.rows import DiskRows, MemoryRows, table_bytes
from diskhop.hops.tables import TableShape
from diskhop.system.memory import buffer_bytes

Place = Literal["device", "memory", "disk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """place: of the tables. shuffle: of training rows. reason: of both, a line."""

    place: Place
    shuffle: Shuffle
    reason: str


def place_tables(
    *,
    num_bytes: int,
    memory_bytes: int,
    device_bytes: int = 0,
    model_bytes: int = 0,
    place: Place | None = None,
    shuffle: Shuffle | None = None,
) -> Placement:
    """Choose for tables of num_bytes, with what the loader holds beside them.

    memory_bytes: of the budget, that nobody holds. device_bytes: of the device's memory, 0 for none. model_bytes: that
    a step of training takes, by a dry run; 0 where there is no model. place, shuffle: as asked for; None: chosen.
    """
    host_bytes = num_bytes + (0 if device_bytes else model_bytes)  # beside a device, that is where the model is
    step = f" and a step of the model {format_bytes(model_bytes)}" if model_bytes else ""
    taken = f"tables take {format_bytes(num_bytes)}{step}"
    if place is not None:
        why = "as asked"
    elif device_bytes and num_bytes + model_bytes <= device_bytes:
        place, why = "device", f"{taken}: they fit the device's {format_bytes(device_bytes)}"
    elif host_bytes <= memory_bytes:
        place, why = "memory", f"{taken}, of the memory {format_bytes(memory_bytes)} are left"
    else:
        place, why = "disk", f"{taken}, more than the {format_bytes(memory_bytes)} of memory that are left"
    if shuffle is not None:
        how = f"shuffle '{shuffle}' as asked"
    elif place == "disk":
        shuffle, how = "chunks", "chunks are shuffled, which are read at once"
    else:
        shuffle, how = "rows", "every row is shuffled by itself"
    return Placement(place=place, shuffle=shuffle, reason=f"placement {place}: {why}; {how}")


def loader_bytes(
    shape: TableShape, num_tables: int, batch_size: int, place: Literal["memory", "disk"], num_buffers: int = 2
) -> dict[str, int]:
    """What a loader of num_tables tables holds, by name; besides rows and their order."""
    source = MemoryRows if place == "memory" else DiskRows
    batch_rows = min(batch_size, shape.num_rows)
    resident = {"hop tables": buffer_bytes(num_tables * table_bytes(shape.num_rows, shape))}
    return {
        **(resident if place == "memory" else {}),
        "hop batches": num_buffers * buffer_bytes(num_tables * table_bytes(batch_rows, shape)),
        "hop staging": source.staging_bytes(shape),
    }
