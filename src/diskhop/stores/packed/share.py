"""How the store `packed` divides memory and disk."""

from __future__ import annotations

from typing import cast

from diskhop.budget import format_bytes
from diskhop.plans import StoreShare
from diskhop.policies.superbatches import FIRST_LENGTH
from diskhop.protocols import Table
from diskhop.stores.packed.chunk import BLOCK_BYTES
from diskhop.stores.packed.layout import Layout
from diskhop.stores.packed.packer import packing_bytes
from diskhop.stores.packed.sizes import (
    chunk_bytes,
    head_bytes,
    own_rows,
    packed_batch_bytes,
    packed_reserves,
    why_not_packable,
)
from diskhop.stores.room import StoreRoom, StoreWishes, choose_superbatch, keep_rows

# Bytes of the table that are read at once for packing: the more, the larger the pieces of each batch that are written.
_PARTITION_BYTES, _SMALLEST_PARTITION_BYTES = 64 << 20, 8 << 20
# Batches that the buffer has room for: the model's, two that are ready, one in flight (DiskGNN, section 6).
_MOST_PACKED, _LEAST_PACKED = 4, 2
# If batches share rows on the disk, rows that several of them need are read once.
_MOST_SHARING_SCAN = 8


def refuses(table: Table, _wishes: StoreWishes) -> str:
    """Refuse a table with more rows than ids on the disk can name."""
    return why_not_packable(table)


def divide(table: Table, room: StoreRoom, wishes: StoreWishes) -> StoreShare:
    """Give memory to batches in flight, then to packing, then to pinned rows, and disk space to superbatches."""
    # find_prepared() of this store opens nothing else.
    layout = cast(Layout | None, wishes.prepared)
    sizes = room.sizes
    # Those of a layout that do not lie on a device.
    held_rows = 0 if layout is None else layout.num_held - wishes.device_rows
    wanted_rows = wishes.cache_rows(table) if layout is None else held_rows
    num_misses = sizes.num_misses(wanted_rows) if wishes.pins_first_rows else sizes.num_rows
    batch_own_rows = own_rows(table, num_misses, 0)
    if layout is not None:
        batch_own_rows = max(batch_own_rows, layout.most_own_rows)
    smallest = {
        **packed_reserves(table, wanted_rows, sizes.num_rows),
        "packed rows": _LEAST_PACKED * batch_own_rows * table.row_bytes,
        "packing": packing_bytes(table, _SMALLEST_PARTITION_BYTES) + packed_batch_bytes(sizes.num_rows),
    }
    record_bytes = 0 if layout is None else sizes.record_bytes
    room.require(smallest, assembles=True, extra_bytes=head_bytes(sizes.num_rows, record_bytes))
    room.grow_in_flight(wishes.batches_before_cache())
    num_batches, partition_bytes = _choose_packing(table, room, batch_own_rows, layout)
    if layout is None:
        cache_rows = keep_rows(table, room, wishes, packed_reserves)
    else:
        cache_rows = held_rows
        epochs = f"{len(layout.epochs)} epochs" if len(layout.epochs) > 1 else "1 epoch"
        room.reasons.append(f"Using {epochs} packed in {layout.path}; {held_rows} rows stay in memory")
    bytes_per_batch = sizes.record_bytes + chunk_bytes(table, sizes.num_rows, batch_own_rows)
    return StoreShare(
        reserves=room.reserves,
        cache_rows=cache_rows,
        buffer_rows=num_batches * batch_own_rows,
        extractors=num_batches,
        partition_bytes=partition_bytes,
        superbatch=choose_superbatch(room, wishes, bytes_per_batch),
        first_superbatch=FIRST_LENGTH,
        scratch=str(wishes.scratch),
        layout="" if layout is None else str(layout.path),
    )


def partition_bytes_for(table: Table, left_bytes: int) -> int:
    """Bytes of the table that are packed at once, for which left_bytes suffice in addition to the smallest memory."""
    smallest_bytes = packing_bytes(table, _SMALLEST_PARTITION_BYTES)
    more_bytes = min(_PARTITION_BYTES - _SMALLEST_PARTITION_BYTES, left_bytes // 2)
    # Partitions are whole blocks of rows: two larger ones may take a little more than twice the bytes added.
    while more_bytes > 0 and packing_bytes(table, _SMALLEST_PARTITION_BYTES + more_bytes) - smallest_bytes > left_bytes:
        more_bytes = max(0, more_bytes - BLOCK_BYTES)
    return _SMALLEST_PARTITION_BYTES + more_bytes


def _choose_packing(table: Table, room: StoreRoom, batch_own_rows: int, layout: Layout | None) -> tuple[int, int]:
    """Return the batches that the buffer has room for, and the bytes of the table that are packed at once."""
    batch_bytes = batch_own_rows * table.row_bytes
    wanted_batches = _MOST_PACKED if layout is None or not layout.has_shared_rows else _MOST_SHARING_SCAN
    num_batches = min(wanted_batches, _LEAST_PACKED + room.left_bytes // max(batch_bytes, 1))
    room.take("packed rows", (num_batches - _LEAST_PACKED) * batch_bytes)
    partition_bytes = _SMALLEST_PARTITION_BYTES
    if layout is None:
        partition_bytes = partition_bytes_for(table, room.left_bytes)
    room.take("packing", packing_bytes(table, partition_bytes) - packing_bytes(table, _SMALLEST_PARTITION_BYTES))
    room.reasons.append(
        f"Buffer for {num_batches} packed batches of up to {batch_own_rows} rows; "
        f"packing in partitions of {format_bytes(partition_bytes)}"
    )
    return num_batches, partition_bytes
