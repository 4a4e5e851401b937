"""The header of a record, and the sizes and places of the record's arrays; record.py has the format."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

PLAIN_VERSION = 1
VERSION = 2
# Bytes to read in order to decode a header.
FIRST_BYTES = 4096

MAGIC = b"DHSB"
HEADERS = {PLAIN_VERSION: struct.Struct("<4sHBB6Q"), VERSION: struct.Struct("<4sHBB8Q")}
CHECKSUM = struct.Struct("<Q")
SHORTEST_HEADER = HEADERS[PLAIN_VERSION].size + CHECKSUM.size
EDGE_WEIGHTS, DISJOINT, ALL_NODES = 1, 2, 4
WIDTHS: dict[int, DTypeLike] = {4: "<u4", 8: "<i8"}

Layout = list[tuple[DTypeLike, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHeader:
    """The header of a record.

    id_bytes, position_bytes: bytes of a stored node id and edge position, 4 or 8.
    number: global number of the batch.
    num_seeds, num_rows, num_expanded, num_edges, num_hops: counts of the batch; rows are distinct nodes.
    parts: optional parts, see the module.
    num_repeated: nodes of a disjoint batch, else 0.
    """

    id_bytes: int
    position_bytes: int
    number: int
    num_seeds: int
    num_rows: int
    num_expanded: int
    num_edges: int
    num_hops: int
    parts: int = 0
    num_repeated: int = 0

    @property
    def version(self) -> int:
        """Version of the record: batches without optional parts have the first."""
        return VERSION if self.parts else PLAIN_VERSION

    @property
    def checksum_offset(self) -> int:
        """Offset of the checksum of the record's first bytes."""
        return HEADERS[self.version].size

    @property
    def arrays_offset(self) -> int:
        """Offset of the first array."""
        return self.checksum_offset + CHECKSUM.size

    @property
    def prefix_bytes(self) -> int:
        """Bytes from the record's start to the end of the node ids' checksum."""
        return self.arrays_offset + _layout_bytes(self.ids_layout) + CHECKSUM.size

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole record, a multiple of 8."""
        return self.prefix_bytes + _layout_bytes(self.blocks_layout) + CHECKSUM.size

    @property
    def ids_layout(self) -> Layout:
        """Dtypes and lengths of the arrays in the prefix."""
        return [("<u8", self.num_hops + 1), ("<u8", self.num_hops), (WIDTHS[self.id_bytes], self.num_rows)]

    @property
    def blocks_layout(self) -> Layout:
        """Dtypes and lengths of the arrays after the prefix."""
        edges = self.num_edges
        layout: Layout = [("<u4", self.num_expanded + 1), ("<i4", edges), (WIDTHS[self.position_bytes], edges)]
        if self.parts & EDGE_WEIGHTS:
            layout.append(("<f4", edges))
        if self.parts & DISJOINT:
            layout += [("<i4", self.num_repeated), ("<i4", self.num_repeated)]
        return layout

    def pack(self) -> bytes:
        """Return the bytes before the first checksum."""
        counts = [self.num_seeds, self.num_rows, self.num_expanded, self.num_edges, self.num_hops]
        if self.parts:
            counts += [self.parts, self.num_repeated]
        return HEADERS[self.version].pack(MAGIC, self.version, self.id_bytes, self.position_bytes, self.number, *counts)


def padded(num_bytes: int) -> int:
    """Round up to the multiple of 8 at which the next array starts."""
    return -(-num_bytes // 8) * 8


def _layout_bytes(layout: Layout) -> int:
    return sum(padded(np.dtype(dtype).itemsize * count) for dtype, count in layout)
