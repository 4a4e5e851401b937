"""The serialised form of a sampled batch, a *record*, in traces and packed chunks.

Everything is little-endian. Every array starts at a multiple of 8 bytes, with zeros between:

    offset 0   magic "DHSB", uint16 version (1), uint8 bytes of a node id, uint8 bytes of an edge position
           8   uint64: global batch number, seeds, nodes, expanded nodes, edges, hops
          56   uint64 xxh3 of the other bytes among the first 4096 of the record (of all of a shorter one)
          64   num_sampled_nodes   uint64 (hops + 1)
               num_sampled_edges   uint64 (hops)
               node_ids            uint32 if the graph has at most 2^32 nodes, else int64 (nodes)
               uint64 xxh3 of the bytes from 64 to here; this ends the *prefix*, enough to read the ids
               indptr              uint32 (expanded nodes + 1)
               sources             int32, local ids (edges)
               edge_positions      uint32 if all are below 2^32, else int64 (edges)
    last 8     uint64 xxh3 of the bytes from the prefix's end to here, with the prefix's xxh3 as its seed

The first 4096 bytes have a checksum of their own, so that a reader can walk from header to header.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import DTypeLike, NDArray

from diskhop._native import BufferPool
from diskhop.errors import ConfigError, FormatError
from diskhop.protocols import NodeIds, SampledBatch

VERSION = 1
# Bytes to read in order to decode a header.
FIRST_BYTES = 4096

_MAGIC = b"DHSB"
_HEADER = struct.Struct("<4sHBB6Q")
_CHECKSUM = struct.Struct("<Q")
_ARRAYS_OFFSET = _HEADER.size + _CHECKSUM.size
_WIDTHS: dict[int, DTypeLike] = {4: "<u4", 8: "<i8"}

_Data = bytes | bytearray | memoryview | NDArray[np.uint8]
_Layout = list[tuple[DTypeLike, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHeader:
    """The header of a record.

    id_bytes, position_bytes: bytes of a stored node id and edge position, 4 or 8.
    number: global number of the batch.
    num_seeds, num_nodes, num_expanded, num_edges, num_hops: counts of the batch.
    """

    id_bytes: int
    position_bytes: int
    number: int
    num_seeds: int
    num_nodes: int
    num_expanded: int
    num_edges: int
    num_hops: int

    @property
    def prefix_bytes(self) -> int:
        """Bytes from the record's start to the end of the node ids' checksum."""
        return _ARRAYS_OFFSET + _layout_bytes(self.ids_layout) + _CHECKSUM.size

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole record, a multiple of 8."""
        return self.prefix_bytes + _layout_bytes(self.blocks_layout) + _CHECKSUM.size

    @property
    def ids_layout(self) -> _Layout:
        """Dtypes and lengths of the arrays in the prefix."""
        return [("<u8", self.num_hops + 1), ("<u8", self.num_hops), (_WIDTHS[self.id_bytes], self.num_nodes)]

    @property
    def blocks_layout(self) -> _Layout:
        """Dtypes and lengths of the arrays after the prefix."""
        edges = self.num_edges
        return [("<u4", self.num_expanded + 1), ("<i4", edges), (_WIDTHS[self.position_bytes], edges)]


def describe_batch(batch: SampledBatch, num_nodes_total: int) -> RecordHeader:
    """Compute the header of a batch sampled from a graph of num_nodes_total nodes."""
    num_edges = len(batch.sources)
    if num_edges >= 2**32:
        raise ConfigError(f"batch {batch.number} has {num_edges} edges; a stored batch has fewer than 2^32")
    return RecordHeader(
        id_bytes=4 if num_nodes_total <= 2**32 else 8,
        position_bytes=4 if num_edges == 0 or int(batch.edge_positions.max()) < 2**32 else 8,
        number=batch.number,
        num_seeds=batch.num_seeds,
        num_nodes=batch.num_nodes,
        num_expanded=len(batch.indptr) - 1,
        num_edges=num_edges,
        num_hops=len(batch.num_sampled_edges),
    )


def encode_into(batch: SampledBatch, header: RecordHeader, out: NDArray[np.uint8]) -> None:
    """Write the record of a batch to out, uint8 (header.num_bytes), without a copy. header: of describe_batch()."""
    ids = (batch.num_sampled_nodes, batch.num_sampled_edges, batch.node_ids)
    ids_end = _store(out, _ARRAYS_OFFSET, ids, header.ids_layout)
    ids_checksum = _digest(out[_ARRAYS_OFFSET:ids_end].data)
    _CHECKSUM.pack_into(out.data, ids_end, ids_checksum)
    blocks = (batch.indptr, batch.sources, batch.edge_positions)
    blocks_end = _store(out, header.prefix_bytes, blocks, header.blocks_layout)
    _CHECKSUM.pack_into(out.data, blocks_end, _digest(out[header.prefix_bytes : blocks_end].data, ids_checksum))
    _HEADER.pack_into(
        out.data,
        0,
        _MAGIC,
        VERSION,
        header.id_bytes,
        header.position_bytes,
        header.number,
        header.num_seeds,
        header.num_nodes,
        header.num_expanded,
        header.num_edges,
        header.num_hops,
    )
    _CHECKSUM.pack_into(out.data, _HEADER.size, _first_digest(out.data))


def encode_batch(batch: SampledBatch, num_nodes_total: int) -> bytes:
    """Serialise a batch sampled from a graph of num_nodes_total nodes; equal batches give equal bytes."""
    header = describe_batch(batch, num_nodes_total)
    out = np.empty(header.num_bytes, np.uint8)
    encode_into(batch, header, out)
    return out.tobytes()


def decode_header(data: _Data) -> RecordHeader:
    """Read the header from at least the first FIRST_BYTES of a record, or from all of a shorter one.

    Raises FormatError for anything that encode_into() did not write.
    """
    view = _view(data)
    if len(view) < _ARRAYS_OFFSET or view[:4] != _MAGIC:
        raise FormatError(
            f"sampled batch: {len(view)} bytes do not start with a record's header; rebuild the file that contains it"
        )
    _, version, id_bytes, position_bytes, number, *counts = _HEADER.unpack_from(view)
    if version != VERSION:
        raise FormatError(f"sampled batch: version {version}, this diskhop reads version {VERSION}; rebuild its file")
    if id_bytes not in _WIDTHS or position_bytes not in _WIDTHS:
        raise _damaged(f"its widths are {id_bytes} and {position_bytes} bytes, not 4 or 8")
    num_seeds, num_nodes, num_expanded, num_edges, num_hops = counts
    header = RecordHeader(
        id_bytes=id_bytes,
        position_bytes=position_bytes,
        number=number,
        num_seeds=num_seeds,
        num_nodes=num_nodes,
        num_expanded=num_expanded,
        num_edges=num_edges,
        num_hops=num_hops,
    )
    first_bytes = min(FIRST_BYTES, header.num_bytes)
    if len(view) < first_bytes:
        raise _damaged(f"it ends after {len(view)} bytes, its counts need {header.num_bytes}")
    _compare(_first_digest(view[:first_bytes]), view, _HEADER.size)
    return header


def decode_node_ids(data: _Data, pool: BufferPool | None = None) -> NodeIds:
    """Read the node ids, int64 (nodes), from at least a record's prefix. Raises FormatError, see decode_header().

    The array is in a buffer of the pool, if given.
    """
    view = _view(data)
    header = decode_header(view)
    _check_ids(view, header)
    stored = _lay_out(view, _ARRAYS_OFFSET, header.ids_layout)[2]
    node_ids = _empty(8 * header.num_nodes, pool).view(np.int64)
    np.copyto(node_ids, stored)
    if len(node_ids) and node_ids.min() < 0:
        raise _damaged("it breaks the rule that node ids are not negative")
    return node_ids


def decode_batch(data: _Data, pool: BufferPool | None = None) -> SampledBatch:
    """Read a batch. Raises FormatError for anything that encode_batch() did not write.

    The arrays share one buffer of SampledBatch.num_bytes, taken from the pool if given; `data` is not kept.
    """
    view = _view(data)
    header = decode_header(view)
    if header.num_bytes != len(view):
        raise _damaged(f"its counts need {header.num_bytes} bytes, it has {len(view)}")
    ids_checksum = _check_ids(view, header)
    blocks_end = header.num_bytes - _CHECKSUM.size
    _compare(_digest(view[header.prefix_bytes : blocks_end], ids_checksum), view, blocks_end)
    nodes_by_hop, edges_by_hop, *ids = _lay_out(view, _ARRAYS_OFFSET, header.ids_layout)
    indptr, sources, positions = _lay_out(view, header.prefix_bytes, header.blocks_layout)
    wide = (*ids, indptr, positions)
    counts = [len(array) for array in wide]
    buffer = _empty(8 * sum(counts) + sources.nbytes, pool)
    copies = np.split(buffer[: 8 * sum(counts)].view(np.int64), np.cumsum(counts[:-1]))
    for copy, array in zip(copies, wide, strict=True):
        np.copyto(copy, array)
    local_sources = buffer[8 * sum(counts) :].view(np.int32)
    np.copyto(local_sources, sources)
    batch = SampledBatch(
        number=header.number,
        num_seeds=header.num_seeds,
        node_ids=copies[0],
        indptr=copies[1],
        sources=local_sources,
        edge_positions=copies[2],
        num_sampled_nodes=tuple(nodes_by_hop.tolist()),
        num_sampled_edges=tuple(edges_by_hop.tolist()),
    )
    _check_consistent(batch)
    return batch


def _check_consistent(batch: SampledBatch) -> None:
    """Check that the arrays are consistent, since native code indexes with them."""
    num_nodes, num_edges = batch.num_nodes, len(batch.sources)
    num_expanded = len(batch.indptr) - 1
    rules = {
        "the first hop's nodes are the seeds": batch.num_sampled_nodes[0] == batch.num_seeds,
        "the nodes by hop add up": sum(batch.num_sampled_nodes) == num_nodes,
        "the edges by hop add up": sum(batch.num_sampled_edges) == num_edges,
        "the nodes before the last hop are the expanded ones": sum(batch.num_sampled_nodes[:-1]) == num_expanded,
        "indptr starts at 0": batch.indptr[0] == 0,
        "indptr ascends": bool(np.all(batch.indptr[1:] >= batch.indptr[:-1])),
        "indptr ends at the edges": batch.indptr[-1] == num_edges,
        "node ids are not negative": num_nodes == 0 or batch.node_ids.min() >= 0,
        "sources are nodes of the batch": num_edges == 0
        or (batch.sources.min() >= 0 and batch.sources.max() < num_nodes),
        "edge positions are not negative": num_edges == 0 or batch.edge_positions.min() >= 0,
    }
    for rule, holds in rules.items():
        if not holds:
            raise _damaged(f"it breaks the rule that {rule}")
    # The sums above are right and counts are not negative, so that no partial sum exceeds its array.
    first_nodes = np.cumsum((0, *batch.num_sampled_nodes[:-1]))
    if not np.array_equal(batch.indptr[first_nodes], np.cumsum((0, *batch.num_sampled_edges))):
        raise _damaged("it breaks the rule that the edges of a hop are those of its nodes")


def _check_ids(view: memoryview, header: RecordHeader) -> int:
    """Check the prefix and return its checksum."""
    if len(view) < header.prefix_bytes:
        raise _damaged(f"its node ids end at byte {header.prefix_bytes}, it has {len(view)}")
    ids_end = header.prefix_bytes - _CHECKSUM.size
    checksum = _digest(view[_ARRAYS_OFFSET:ids_end])
    _compare(checksum, view, ids_end)
    return checksum


def _store(out: NDArray[np.uint8], offset: int, arrays: tuple[object, ...], layout: _Layout) -> int:
    """Write arrays one after another, padded with zeros, and return their end."""
    for values, (dtype, count) in zip(arrays, layout, strict=True):
        end = offset + np.dtype(dtype).itemsize * count
        np.copyto(out[offset:end].view(dtype), np.asarray(values), casting="unsafe")
        offset += _padded(end - offset)
        out[end:offset] = 0
    return offset


def _lay_out(view: memoryview, offset: int, layout: _Layout) -> list[NDArray[np.generic]]:
    """View the bytes from an offset on as read-only arrays."""
    arrays: list[NDArray[np.generic]] = []
    for dtype, count in layout:
        arrays.append(np.frombuffer(view, dtype, count, offset))
        offset += _padded(arrays[-1].nbytes)
    return arrays


def _empty(num_bytes: int, pool: BufferPool | None) -> NDArray[np.uint8]:
    return np.empty(num_bytes, np.uint8) if pool is None else pool.take(num_bytes)


def _layout_bytes(layout: _Layout) -> int:
    return sum(_padded(np.dtype(dtype).itemsize * count) for dtype, count in layout)


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // 8) * 8


def _view(data: _Data) -> memoryview:
    return memoryview(data.data if isinstance(data, np.ndarray) else data).cast("B").toreadonly()


def _digest(data: memoryview, seed: int = 0) -> int:
    return xxhash.xxh3_64_intdigest(data, seed)


def _first_digest(data: memoryview) -> int:
    hasher = xxhash.xxh3_64(data[: _HEADER.size])
    hasher.update(data[_ARRAYS_OFFSET:FIRST_BYTES])
    return hasher.intdigest()


def _compare(actual: int, view: memoryview, offset: int) -> None:
    (expected,) = _CHECKSUM.unpack_from(view, offset)
    if actual != expected:
        raise _damaged(f"its checksum at byte {offset} is {actual:016x}, not {expected:016x}")


def _damaged(detail: str) -> FormatError:
    return FormatError(f"sampled batch: damaged: {detail}; rebuild the file that contains it")
