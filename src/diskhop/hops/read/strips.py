"""Planning of reads for rows of a hop table: pure functions, for tiles and for contiguous rows.

A *run* is consecutive rows of the table that are consecutive in a batch. A *strip* is the rows of one group, in every
tile, that are read together, including unwanted rows in gaps that are cheaper to read than to skip. Rows read *in
place* go directly to their place in the batch, without a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.hops.tables import PAGE_BYTES, TILE_ROWS, TableShape

# Bytes per request; several are in flight.
REQUEST_BYTES = 1 << 20
# Approximate size of a strip, all tiles together.
_STRIP_BYTES = 2 << 20

Offsets = NDArray[np.uint64]
Rows = NDArray[np.int64]


class Reads(NamedTuple):
    """Requests for one file.

    offsets: uint64, offset of each request in the file.
    num_bytes: uint64, length of each request.
    places: uint64, destination of each request in the buffer.
    """

    offsets: Offsets
    num_bytes: Offsets
    places: Offsets


@dataclass(frozen=True, slots=True, eq=False)
class Strip:
    """Rows of one group that are read together.

    reads: requests, with places in a slot.
    tile_bytes: bytes of each tile, the distance of tiles in the slot.
    skipped_bytes: bytes in a tile before the first wanted row.
    rows: int64, wanted rows, relative to the first one.
    to_rows: int64, their rows in the batch.
    """

    reads: Reads
    tile_bytes: int
    skipped_bytes: int
    rows: Rows
    to_rows: Rows


def runs_of(rows: Rows) -> tuple[Rows, Rows]:
    """Split a batch into maximal runs. Returns their first rows and lengths, int64."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(rows) != 1) + 1]) if len(rows) else np.empty(0, np.int64)
    return rows[starts], np.diff(np.append(starts, len(rows)))


def reads_in_place(rows: Rows, shape: TableShape, alignment: int) -> Reads | None:
    """Plan requests that read a batch's rows in place; None if that is not possible.

    It is possible if rows are contiguous and every run begins and ends at a multiple of alignment (a power of two, at
    most PAGE_BYTES). The last run may end elsewhere: the batch needs room up to the end of that page.
    """
    if not shape.is_row_major:
        return None
    first_rows, lengths = runs_of(rows)
    begins, sizes = first_rows * shape.row_bytes, lengths * shape.row_bytes
    sizes[-1:] = -(-sizes[-1:] // alignment) * alignment
    if ((begins | sizes) & (alignment - 1)).any():
        return None
    return split_reads(begins, sizes, np.cumsum(sizes) - sizes)


def split_reads(begins: Rows, sizes: Rows, places: Rows) -> Reads:
    """Split ranges of a file into requests of at most REQUEST_BYTES."""
    pieces = -(-sizes // REQUEST_BYTES)
    which = np.repeat(np.arange(len(sizes)), pieces)
    within = (np.arange(len(which)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * REQUEST_BYTES
    return Reads(
        (begins[which] + within).astype(np.uint64),
        np.minimum(sizes[which] - within, REQUEST_BYTES).astype(np.uint64),
        (places[which] + within).astype(np.uint64),
    )


def strip_rows(shape: TableShape) -> int:
    """Return the rows of the largest strip: a power of two, at most a group."""
    fitting = max(1, _STRIP_BYTES // (shape.num_tiles * shape.tile_row_bytes))
    most = int(min(TILE_ROWS, fitting, max(1, shape.num_rows)))
    return 1 << (most.bit_length() - 1)


def slot_bytes(shape: TableShape) -> int:
    """Return the bytes of a slot that any strip fits into."""
    tile_bytes = strip_rows(shape) * shape.tile_row_bytes
    if tile_bytes % PAGE_BYTES:
        # Both ends share pages with other strips.
        tile_bytes = (-(-tile_bytes // PAGE_BYTES) + 1) * PAGE_BYTES
    return shape.num_tiles * tile_bytes


def plan_strips(rows: Rows, shape: TableShape, *, max_gap_bytes: int, alignment: int) -> list[Strip]:
    """Plan the strips of a batch's rows (any order, each once), in the order of the table.

    max_gap_bytes: largest gap in a tile that is read rather than skipped. alignment: a power of two, at most
        PAGE_BYTES.
    """
    order = np.argsort(rows, kind="stable")
    ascending = rows[order]
    gaps = np.diff(ascending)
    is_last = ((gaps - 1) * shape.tile_row_bytes > max_gap_bytes) | (np.diff(ascending // strip_rows(shape)) != 0)
    ends = np.append(np.flatnonzero(is_last) + 1, len(rows)) if len(rows) else np.empty(0, np.int64)
    strips = []
    for start, end in zip(np.append(0, ends)[:-1], ends, strict=True):
        group, first = divmod(int(ascending[start]), TILE_ROWS)
        begin = first * shape.tile_row_bytes
        aligned = begin // alignment * alignment
        stop = (int(ascending[end - 1]) - group * TILE_ROWS + 1) * shape.tile_row_bytes
        tile_bytes = -(-stop // alignment) * alignment - aligned
        tiles = np.arange(shape.num_tiles)
        strips.append(
            Strip(
                reads=split_reads(
                    shape.tile_offset(group, 0) + tiles * shape.tile_bytes + aligned,
                    np.full(shape.num_tiles, tile_bytes),
                    tiles * tile_bytes,
                ),
                tile_bytes=tile_bytes,
                skipped_bytes=begin - aligned,
                rows=ascending[start:end] - ascending[start],
                to_rows=order[start:end],
            )
        )
    return strips
