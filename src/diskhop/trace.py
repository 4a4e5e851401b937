"""The serialised form of a sampled batch, which traces and packed chunks store.

Everything is little-endian; every array starts at a multiple of 8 bytes, with zeros between:

    offset 0   magic "DHSB", uint16 version (1), uint8 bytes of a node id, uint8 bytes of an edge position
           8   uint64: bytes in all (checksum included), global batch number, seeds, nodes, expanded nodes, edges, hops
          64   num_sampled_nodes   uint64 (hops + 1)
               num_sampled_edges   uint64 (hops)
               node_ids            uint32 where the graph has at most 2^32 nodes, else int64 (nodes)
               indptr              uint32 (expanded nodes + 1)
               sources             int32, local ids (edges)
               edge_positions      uint32 where all are below 2^32, else int64 (edges)
    last 8     uint64 xxh3 of all bytes before it
"""

from __future__ import annotations

import struct

import numpy as np
import xxhash
from numpy.typing import DTypeLike, NDArray

from diskhop.errors import ConfigError, FormatError
from diskhop.protocols import SampledBatch

VERSION = 1
_MAGIC = b"DHSB"
_HEADER = struct.Struct("<4sHBB7Q")
_CHECKSUM = struct.Struct("<Q")
_WIDTHS: dict[int, DTypeLike] = {4: "<u4", 8: "<i8"}


def encode_batch(batch: SampledBatch, num_nodes_total: int) -> bytes:
    """Serialise a batch sampled from a graph of num_nodes_total nodes; equal batches give equal bytes."""
    num_edges = len(batch.sources)
    if num_edges >= 2**32:
        raise ConfigError(f"batch {batch.number} has {num_edges} edges; a stored batch has fewer than 2^32")
    id_bytes = 4 if num_nodes_total <= 2**32 else 8
    position_bytes = 4 if num_edges == 0 or int(batch.edge_positions.max()) < 2**32 else 8
    arrays = (
        _stored(batch.num_sampled_nodes, np.uint64),
        _stored(batch.num_sampled_edges, np.uint64),
        _stored(batch.node_ids, _WIDTHS[id_bytes]),
        _stored(batch.indptr, np.uint32),
        _stored(batch.sources, np.int32),
        _stored(batch.edge_positions, _WIDTHS[position_bytes]),
    )
    header = _HEADER.pack(
        _MAGIC,
        VERSION,
        id_bytes,
        position_bytes,
        _HEADER.size + sum(map(len, arrays)) + _CHECKSUM.size,
        batch.number,
        batch.num_seeds,
        batch.num_nodes,
        len(batch.indptr) - 1,
        num_edges,
        len(batch.num_sampled_edges),
    )
    body = b"".join((header, *arrays))
    return body + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(body))


def decode_batch(data: bytes | bytearray | memoryview) -> SampledBatch:
    """Read a batch back; raises FormatError for anything that encode_batch did not write.

    Arrays whose stored width is that of SampledBatch (sources; 8-byte ids and positions) are read-only views of
    `data`, where it is aligned to their width; the others are converted.
    """
    view = memoryview(data).cast("B").toreadonly()
    if len(view) < _HEADER.size + _CHECKSUM.size or view[:4] != _MAGIC:
        raise FormatError(
            f"sampled batch: {len(view)} bytes that do not start with the header of one; rebuild the file that holds it"
        )
    _, version, id_bytes, position_bytes, num_bytes, *counts = _HEADER.unpack_from(view)
    if version != VERSION:
        raise FormatError(f"sampled batch: version {version}, this diskhop reads version {VERSION}; rebuild its file")
    if num_bytes != len(view):
        raise _damaged(f"it is {len(view)} bytes long, its header says {num_bytes}")
    (expected,) = _CHECKSUM.unpack_from(view, num_bytes - _CHECKSUM.size)
    actual = xxhash.xxh3_64_intdigest(view[: -_CHECKSUM.size])
    if actual != expected:
        raise _damaged(f"its checksum is {actual:016x}, not {expected:016x}")
    return _decode_body(view, id_bytes, position_bytes, counts)


def _decode_body(view: memoryview, id_bytes: int, position_bytes: int, counts: list[int]) -> SampledBatch:
    """Lay the arrays over the bytes and check that they fit together: native code indexes with them."""
    number, num_seeds, num_nodes, num_expanded, num_edges, num_hops = counts
    if id_bytes not in _WIDTHS or position_bytes not in _WIDTHS:
        raise _damaged(f"its widths are {id_bytes} and {position_bytes} bytes, not 4 or 8")
    layout: list[tuple[DTypeLike, int]] = [
        ("<u8", num_hops + 1),
        ("<u8", num_hops),
        (_WIDTHS[id_bytes], num_nodes),
        ("<u4", num_expanded + 1),
        ("<i4", num_edges),
        (_WIDTHS[position_bytes], num_edges),
    ]
    needed_bytes = _HEADER.size + sum(_padded(np.dtype(dtype).itemsize * count) for dtype, count in layout)
    if needed_bytes + _CHECKSUM.size != len(view):
        raise _damaged(f"its counts need {needed_bytes + _CHECKSUM.size} bytes, it has {len(view)}")
    arrays: list[NDArray[np.generic]] = []
    offset = _HEADER.size
    for dtype, count in layout:
        arrays.append(np.frombuffer(view, dtype, count, offset))
        offset += _padded(arrays[-1].nbytes)
    nodes_by_hop, edges_by_hop, node_ids, indptr, sources, edge_positions = arrays
    batch = SampledBatch(
        number=number,
        num_seeds=num_seeds,
        node_ids=node_ids.astype(np.int64, copy=False),
        indptr=indptr.astype(np.int64),
        sources=sources.astype(np.int32, copy=False),
        edge_positions=edge_positions.astype(np.int64, copy=False),
        num_sampled_nodes=tuple(nodes_by_hop.tolist()),
        num_sampled_edges=tuple(edges_by_hop.tolist()),
    )
    _check_consistent(batch)
    return batch


def _check_consistent(batch: SampledBatch) -> None:
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
    # The sums above hold, so that no partial sum exceeds its array (counts are not negative).
    first_nodes = np.cumsum((0, *batch.num_sampled_nodes[:-1]))
    if not np.array_equal(batch.indptr[first_nodes], np.cumsum((0, *batch.num_sampled_edges))):
        raise _damaged("it breaks the rule that the edges of a hop are those of its nodes")


def _stored(values: object, dtype: DTypeLike) -> bytes:
    """The bytes of an array, little-endian, padded to a multiple of 8."""
    stored = np.asarray(values, np.dtype(dtype).newbyteorder("<")).tobytes()
    return stored.ljust(_padded(len(stored)), b"\0")


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // 8) * 8


def _damaged(detail: str) -> FormatError:
    return FormatError(f"sampled batch: damaged: {detail}; rebuild the file that holds it")
