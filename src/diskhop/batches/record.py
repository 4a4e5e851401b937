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

Version 2 is written for batches with more arrays only. Its header has two more uint64 before the checksum:

          56   parts: the sum of 1 for edge weights, 2 for a disjoint batch, 4 for edges of all nodes (not by hop)
          64   nodes of a disjoint batch, each as often as it is there; else 0

node_ids are then the distinct rows of the batch, and these follow edge_positions, as parts says:

               edge_weights        float32 (edges)
               node rows           int32 (nodes), the place of each node in node_ids
               seed_of             int32 (nodes)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xxhash
from numpy.typing import DTypeLike, NDArray

from diskhop._native import BufferPool
from diskhop.batches.record_header import (
    ALL_NODES,
    CHECKSUM,
    DISJOINT,
    EDGE_WEIGHTS,
    FIRST_BYTES,
    HEADERS,
    MAGIC,
    PLAIN_VERSION,
    SHORTEST_HEADER,
    VERSION,
    WIDTHS,
    Layout,
    RecordHeader,
    padded,
)
from diskhop.errors import ConfigError, FormatError
from diskhop.protocols import DistinctRows, NodeIds, SampledBatch

_Data = bytes | bytearray | memoryview | NDArray[np.uint8]


def describe_batch(batch: SampledBatch, num_nodes_total: int) -> RecordHeader:
    """Compute the header of a batch sampled from a graph of num_nodes_total nodes."""
    num_edges = len(batch.sources)
    if num_edges >= 2**32:
        raise ConfigError(f"batch {batch.number} has {num_edges} edges; a stored batch has fewer than 2^32")
    parts = 0 if batch.edge_weights is None else EDGE_WEIGHTS
    parts |= 0 if batch.distinct is None else DISJOINT
    parts |= 0 if batch.by_hop else ALL_NODES
    return RecordHeader(
        id_bytes=4 if num_nodes_total <= 2**32 else 8,
        position_bytes=4 if num_edges == 0 or int(batch.edge_positions.max()) < 2**32 else 8,
        number=batch.number,
        num_seeds=batch.num_seeds,
        num_rows=batch.num_rows,
        num_expanded=len(batch.indptr) - 1,
        num_edges=num_edges,
        num_hops=len(batch.num_sampled_edges),
        parts=parts,
        num_repeated=0 if batch.distinct is None else batch.num_nodes,
    )


def encode_into(batch: SampledBatch, header: RecordHeader, out: NDArray[np.uint8]) -> None:
    """Write the record of a batch to out, uint8 (header.num_bytes), without a copy. header: of describe_batch()."""
    ids = (batch.num_sampled_nodes, batch.num_sampled_edges, batch.row_ids)
    ids_end = _store(out, header.arrays_offset, ids, header.ids_layout)
    ids_checksum = _digest(out[header.arrays_offset : ids_end].data)
    CHECKSUM.pack_into(out.data, ids_end, ids_checksum)
    blocks: tuple[object, ...] = (batch.indptr, batch.sources, batch.edge_positions)
    if batch.edge_weights is not None:
        blocks = (*blocks, batch.edge_weights)
    if batch.distinct is not None:
        blocks = (*blocks, batch.distinct.of_nodes, batch.seed_of)
    blocks_end = _store(out, header.prefix_bytes, blocks, header.blocks_layout)
    CHECKSUM.pack_into(out.data, blocks_end, _digest(out[header.prefix_bytes : blocks_end].data, ids_checksum))
    out[: header.checksum_offset] = np.frombuffer(header.pack(), np.uint8)
    CHECKSUM.pack_into(out.data, header.checksum_offset, _first_digest(out.data, header))


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
    if len(view) < SHORTEST_HEADER or view[:4] != MAGIC:
        raise FormatError(
            f"sampled batch: {len(view)} bytes do not start with a record's header; rebuild the file that contains it"
        )
    version = int.from_bytes(view[4:6], "little")
    if version not in HEADERS:
        raise FormatError(
            f"sampled batch: version {version}, this diskhop reads versions {PLAIN_VERSION} to {VERSION}; "
            "rebuild its file"
        )
    if len(view) < HEADERS[version].size + CHECKSUM.size:
        raise _damaged(f"it ends after {len(view)} bytes, within its header")
    _, _, id_bytes, position_bytes, number, *counts = HEADERS[version].unpack_from(view)
    if id_bytes not in WIDTHS or position_bytes not in WIDTHS:
        raise _damaged(f"its widths are {id_bytes} and {position_bytes} bytes, not 4 or 8")
    num_seeds, num_rows, num_expanded, num_edges, num_hops, parts, num_repeated = (*counts, 0, 0)[:7]
    if (version == VERSION) != (0 < parts < 8) or (num_repeated > 0 and not parts & DISJOINT):
        raise _damaged(f"its parts are {parts}, with {num_repeated} nodes of a disjoint batch")
    header = RecordHeader(
        id_bytes=id_bytes,
        position_bytes=position_bytes,
        number=number,
        num_seeds=num_seeds,
        num_rows=num_rows,
        num_expanded=num_expanded,
        num_edges=num_edges,
        num_hops=num_hops,
        parts=parts,
        num_repeated=num_repeated,
    )
    first_bytes = min(FIRST_BYTES, header.num_bytes)
    if len(view) < first_bytes:
        raise _damaged(f"it ends after {len(view)} bytes, its counts need {header.num_bytes}")
    _compare(_first_digest(view[:first_bytes], header), view, header.checksum_offset)
    return header


def decode_node_ids(data: _Data, pool: BufferPool | None = None) -> NodeIds:
    """Read the distinct node ids, int64 (rows), from at least a record's prefix. Raises FormatError: decode_header().

    The array is in a buffer of the pool, if given.
    """
    view = _view(data)
    header = decode_header(view)
    _check_ids(view, header)
    stored = _lay_out(view, header.arrays_offset, header.ids_layout)[2]
    node_ids = _empty(8 * header.num_rows, pool).view(np.int64)
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
    blocks_end = header.num_bytes - CHECKSUM.size
    _compare(_digest(view[header.prefix_bytes : blocks_end], ids_checksum), view, blocks_end)
    batch = _copy_batch(view, header, pool)
    _check_consistent(batch)
    return batch


def _copy_batch(view: memoryview, header: RecordHeader, pool: BufferPool | None) -> SampledBatch:
    """Copy the arrays of a checked record into one buffer, those of 8 bytes first."""
    nodes_by_hop, edges_by_hop, ids = _lay_out(view, header.arrays_offset, header.ids_layout)
    indptr, sources, positions, *more = _lay_out(view, header.prefix_bytes, header.blocks_layout)
    stored: list[tuple[NDArray[Any], DTypeLike]] = [(ids, np.int64), (indptr, np.int64), (positions, np.int64)]
    if header.parts & DISJOINT:
        node_rows, seed_of = more[-2:]
        if len(node_rows) and not (node_rows.min() >= 0 and node_rows.max() < header.num_rows):
            raise _damaged("it breaks the rule that nodes are among the batch's rows")
        stored += [(ids[node_rows], np.int64), (node_rows, np.int64), (seed_of, np.int64)]
    num_wide = len(stored)
    stored.append((sources, np.int32))
    if header.parts & EDGE_WEIGHTS:
        stored.append((more[0], np.float32))
    sizes = [np.dtype(dtype).itemsize * len(array) for array, dtype in stored]
    parts = np.split(_empty(sum(sizes), pool), np.cumsum(sizes[:-1]))
    copies: list[NDArray[Any]] = [part.view(dtype) for part, (_, dtype) in zip(parts, stored, strict=True)]
    for copy, (array, _) in zip(copies, stored, strict=True):
        np.copyto(copy, array)
    is_disjoint = bool(header.parts & DISJOINT)
    return SampledBatch(
        number=header.number,
        num_seeds=header.num_seeds,
        node_ids=copies[3] if is_disjoint else copies[0],
        indptr=copies[1],
        sources=copies[num_wide],
        edge_positions=copies[2],
        num_sampled_nodes=tuple(nodes_by_hop.tolist()),
        num_sampled_edges=tuple(edges_by_hop.tolist()),
        edge_weights=copies[num_wide + 1] if header.parts & EDGE_WEIGHTS else None,
        seed_of=copies[5] if is_disjoint else None,
        distinct=DistinctRows(copies[0], copies[4]) if is_disjoint else None,
        by_hop=not header.parts & ALL_NODES,
    )


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
        "edges of all nodes are of nodes expanded": batch.by_hop or batch.num_sampled_nodes[-1] == 0,
        "every node belongs to a seed": batch.seed_of is None
        or num_nodes == 0
        or (batch.seed_of.min() >= 0 and batch.seed_of.max() < batch.num_seeds),
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
    ids_end = header.prefix_bytes - CHECKSUM.size
    checksum = _digest(view[header.arrays_offset : ids_end])
    _compare(checksum, view, ids_end)
    return checksum


def _store(out: NDArray[np.uint8], offset: int, arrays: tuple[object, ...], layout: Layout) -> int:
    """Write arrays one after another, padded with zeros, and return their end."""
    for values, (dtype, count) in zip(arrays, layout, strict=True):
        end = offset + np.dtype(dtype).itemsize * count
        np.copyto(out[offset:end].view(dtype), np.asarray(values), casting="unsafe")
        offset += padded(end - offset)
        out[end:offset] = 0
    return offset


def _lay_out(view: memoryview, offset: int, layout: Layout) -> list[NDArray[np.generic]]:
    """View the bytes from an offset on as read-only arrays."""
    arrays: list[NDArray[np.generic]] = []
    for dtype, count in layout:
        arrays.append(np.frombuffer(view, dtype, count, offset))
        offset += padded(arrays[-1].nbytes)
    return arrays


def _empty(num_bytes: int, pool: BufferPool | None) -> NDArray[np.uint8]:
    return np.empty(num_bytes, np.uint8) if pool is None else pool.take(num_bytes)


def _view(data: _Data) -> memoryview:
    return memoryview(data.data if isinstance(data, np.ndarray) else data).cast("B").toreadonly()


def _digest(data: memoryview, seed: int = 0) -> int:
    return xxhash.xxh3_64_intdigest(data, seed)


def _first_digest(data: memoryview, header: RecordHeader) -> int:
    hasher = xxhash.xxh3_64(data[: header.checksum_offset])
    hasher.update(data[header.arrays_offset : FIRST_BYTES])
    return hasher.intdigest()


def _compare(actual: int, view: memoryview, offset: int) -> None:
    (expected,) = CHECKSUM.unpack_from(view, offset)
    if actual != expected:
        raise _damaged(f"its checksum at byte {offset} is {actual:016x}, not {expected:016x}")


def _damaged(detail: str) -> FormatError:
    return FormatError(f"sampled batch: damaged: {detail}; rebuild the file that contains it")
