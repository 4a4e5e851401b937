"""Nodes and edges of a dataset as streams of Arrow record batches, a few megabytes at a time.

Nodes come in the order of node_ids(), edges in that of the neighbour lists; both have ids of the source. Columns are
called as the importer of tables takes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop.config.options import require_known
from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.edge_set import EdgeSet, destinations_of
from diskhop.dataset.encoding import decode_rows
from diskhop.dataset.files import map_array
from diskhop.dataset.node_set import NodeSet
from diskhop.protocols import NodeRows
from diskhop.runtime.blocks import row_ranges

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK_BYTES = 8 << 20
_EDGES_PER_BLOCK = 1 << 17
NODES, EDGES = "nodes", "edges"


class _Typed(Protocol):
    """A dataset, as this module needs it."""

    nodes: Mapping[str, NodeSet]
    edges: Mapping[str, EdgeSet]

    @property
    def only_nodes(self) -> NodeSet: ...

    @property
    def only_edges(self) -> EdgeSet: ...


def arrow_reader(dataset: _Typed, what: str, name: str | None) -> pa.RecordBatchReader:
    """Stream nodes or edges; see Dataset.to_arrow(). Raises ConfigError for an unknown type."""
    import pyarrow as pa  # takes half a second and 30 MB

    require_known("part", what, (NODES, EDGES), "to_arrow: ")
    if what == NODES:
        if name is not None:
            require_known("node type", name, dataset.nodes, "to_arrow: ")
        blocks = _node_blocks(dataset.only_nodes if name is None else dataset.nodes[name])
    else:
        if name is not None:
            require_known("edge type", name, dataset.edges, "to_arrow: ")
        blocks = _edge_blocks(dataset.only_edges if name is None else dataset.edges[name])
    first = next(blocks)
    batches = (pa.record_batch(block) for block in blocks)
    return pa.RecordBatchReader.from_batches(pa.record_batch(first).schema, batches)


def _node_blocks(nodes: NodeSet) -> Iterator[dict[str, Any]]:
    """Yield columns of no nodes, for the schema, then of all in blocks."""
    id_map, table, labels = nodes.lookup(), nodes.feature_table(), nodes.label_rows()
    dim = nodes.feature_dim
    stored: NDArray[np.uint8] | None = None
    if table is not None:
        stored = map_array(table.path, np.uint8, table.num_rows * table.row_stride).reshape(-1, table.row_stride)
    splits = {name: _split_of_row(nodes, number) for number, name in enumerate(_split_names(nodes))}
    attributes = {name: (info, nodes.attribute(name)) for name, info in nodes.attributes.items() if not info.stored_as}
    labels_bytes = 0 if labels is None else labels[:0].itemsize * math.prod(labels.shape[1:])
    rows_at_once = _rows_at_once(4 * dim + labels_bytes + 64, (info for info, _ in attributes.values()))
    all_rows = id_map.all_rows()
    for start, stop in [(0, 0), *row_ranges(nodes.num_nodes, rows_at_once)]:
        rows = NodeRows(all_rows[start:stop])
        columns: dict[str, Any] = {"id": id_map.ids(rows)}
        if stored is not None:
            columns["feature"] = _column(decode_rows(stored[rows], nodes.feature_dtype, dim))
        if labels is not None:
            columns["label"] = _labels(labels[rows])
        columns |= {name: _texts(codes[rows]) for name, codes in splits.items()}
        columns |= {name: _attribute(values, info, rows) for name, (info, values) in attributes.items()}
        yield columns


def _edge_blocks(edges: EdgeSet) -> Iterator[dict[str, Any]]:
    """Yield columns of no edges, for the schema, then of all in blocks."""
    files, (sources, destinations) = edges.topology, edges.end_nodes
    indptr = map_array(files.indptr_path, np.int64, files.num_nodes + 1)
    indices = map_array(files.indices_path, files.index_dtype, files.num_edges)
    known = {"weight": edges.edge_weights(), "time": edges.edge_times()}
    values = {name: each for name, each in known.items() if each is not None}
    own = {name: (info, edges.attribute(name)) for name, info in edges.attributes.items() if not info.stored_as}
    ids, source_ids = destinations.lookup(), sources.lookup()
    edges_at_once = _rows_at_once(_BLOCK_BYTES // _EDGES_PER_BLOCK, (info for info, _ in own.values()))
    for start, stop in [(0, 0), *row_ranges(files.num_edges, edges_at_once)]:
        place = slice(start, stop)
        ends = destinations_of(indptr, start, stop) if stop else np.empty(0, np.int64)
        columns: dict[str, Any] = {
            "source": source_ids.ids(NodeRows(indices[place].astype(np.int64))),
            "destination": ids.ids(NodeRows(ends)),
            **{name: np.array(each[place]) for name, each in values.items()},
        }
        yield columns | {name: _attribute(each, info, place) for name, (info, each) in own.items()}


def _rows_at_once(row_bytes: int, attributes: Iterable[AttributeInfo]) -> int:
    """Return the rows of a block. row_bytes: of a row without its attributes; bfloat16 becomes float32."""
    return max(1, _BLOCK_BYTES // (row_bytes + sum(2 * each.row_bytes for each in attributes)))


def _split_names(nodes: NodeSet) -> list[str]:
    if nodes.num_splits == 1:
        return ["split"]
    return [f"split_{number}" for number in range(nodes.num_splits)]


def _split_of_row(nodes: NodeSet, number: int) -> NDArray[np.int8]:
    """Return the part of each row in a split: 1 train, 2 valid, 3 test, 0 none; of several, the last."""
    codes = np.zeros(nodes.num_nodes, np.int8)
    for code, part in enumerate(_PARTS[1:], 1):
        rows = nodes.split_rows(part, number)
        if rows is not None:
            codes[rows] = code
    return codes


_PARTS = ("", "train", "valid", "test")


def _texts(codes: NDArray[np.int8]) -> Any:
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(_PARTS))


def _labels(values: NDArray[Any]) -> Any:
    import pyarrow as pa

    return _column(values) if values.ndim > 1 else pa.array(values, mask=values < 0)


def _attribute(values: NDArray[Any] | None, info: AttributeInfo, places: Any) -> Any:
    assert values is not None, "it has values of its own"
    found = np.array(values[places])
    if info.dtype == "bfloat16":
        found = (found.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return _column(found)


def _column(values: NDArray[Any]) -> Any:
    """Return an Arrow array; values of more than one dimension are lists of one length."""
    import pyarrow as pa

    if values.ndim == 1:
        return pa.array(np.ascontiguousarray(values))
    width = int(np.prod(values.shape[1:]))
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, width)
