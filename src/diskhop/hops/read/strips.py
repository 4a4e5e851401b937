"""From rows of a hop table to reads: pure, the same for tiles and for rows that lie whole.

A *run* is rows that lie together and come together in a batch. A *strip* is rows of one group that are read together,
of every tile, among them rows that nobody wants where the gap is cheaper to read than to skip. What is *in place* is
read right to where the batch has it, without a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.hops.tables import PAGE_BYTES, TILE_ROWS, TableShape

# Of one request: several of them are in flight.
REQUEST_BYTES = 1 << 20
# What a strip holds of all tiles, about.
_STRIP_BYTES = 2 << 20

Offsets = NDArray[np.uint64]
Rows = NDArray[np.int64]


class Reads(NamedTuple):
    """Requests of one file: where each begins there, its bytes, and where these go to."""

    offsets: Offsets
    num_bytes: Offsets
    places: Offsets


@dataclass(frozen=True, slots=True, eq=False)
class Strip:
    """reads: whose places are those of a slot. tile_bytes: of each tile, at multiples of it in the slot.

    skipped_bytes: before the strip's first row in a tile. rows: int64, wanted, counted from that row; to_rows: int64,
    those of the batch that they are.
    """

    reads: Reads
    tile_bytes: int
    skipped_bytes: int
    rows: Rows
    to_rows: Rows


def runs_of(rows: Rows) -> tuple[Rows, Rows]:
    """First rows and lengths, int64, of the longest runs in a batch's order."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(rows) != 1) + 1]) if len(rows) else np.empty(0, np.int64)
    return rows[starts], np.diff(np.append(starts, len(rows)))


def reads_in_place(rows: Rows, shape: TableShape, alignment: int) -> Reads | None:
    """Requests that bring a batch's rows to their places in it, one row after the other; None: not possible.

    It is where rows lie whole and every run begins and ends at a multiple of alignment (a power of two, at most
    PAGE_BYTES). Only the last run may end elsewhere: the batch must have room up to the end of that page.
    """
    if not shape.is_row_major:
        return None
    first_rows, lengths = runs_of(rows)
    begins, sizes = first_rows * shape.row_bytes, lengths * shape.row_bytes
    sizes[-1:] = -(-sizes[-1:] // alignment) * alignment
    if ((begins | sizes) & (alignment - 1)).any():
        return None
    return cut_reads(begins, sizes, np.cumsum(sizes) - sizes)


def cut_reads(begins: Rows, sizes: Rows, places: Rows) -> Reads:
    """Requests of at most REQUEST_BYTES for ranges of a file."""
    pieces = -(-sizes // REQUEST_BYTES)
    which = np.repeat(np.arange(len(sizes)), pieces)
    within = (np.arange(len(which)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * REQUEST_BYTES
    return Reads(
        (begins[which] + within).astype(np.uint64),
        np.minimum(sizes[which] - within, REQUEST_BYTES).astype(np.uint64),
        (places[which] + within).astype(np.uint64),
    )


def strip_rows(shape: TableShape) -> int:
    """Rows of the largest strip: a power of two, at most a group."""
    fitting = max(1, _STRIP_BYTES // (shape.num_tiles * shape.tile_row_bytes))
    most = int(min(TILE_ROWS, fitting, max(1, shape.num_rows)))
    return 1 << (most.bit_length() - 1)


def slot_bytes(shape: TableShape) -> int:
    """Memory that any strip fits into."""
    tile_bytes = strip_rows(shape) * shape.tile_row_bytes
    if tile_bytes % PAGE_BYTES:
        # Its ends lie in pages of others, too.
        tile_bytes = (-(-tile_bytes // PAGE_BYTES) + 1) * PAGE_BYTES
    return shape.num_tiles * tile_bytes


def plan_strips(rows: Rows, shape: TableShape, *, max_gap_bytes: int, alignment: int) -> list[Strip]:
    """Strips that together have all rows of a batch, in any order, each once; in the order of the table.

    max_gap_bytes: of a tile, that are read over rather than skipped. alignment: a power of two, at most PAGE_BYTES.
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
                reads=cut_reads(
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
