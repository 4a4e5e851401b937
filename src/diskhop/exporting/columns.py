"""Streams nodes and edges of a dataset in the order of the original ids.

A node's *place* is its rank by original id, its *row* is its id in the dataset. They are equal unless the nodes were
renumbered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.attribute_set import StoredColumn
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.encoding import decode_rows, decoded_dtype
from diskhop.dataset.files import damaged, read_rows
from diskhop.dataset.id_map import rank_by_id
from diskhop.dataset.manifest import index_dtype, split_file
from diskhop.dataset.sort.moved_rows import RowMover
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.progress import tracked
from diskhop.runtime.work_tools import WorkTools

_BLOCK_BYTES = 4 << 20
EDGES_PER_BLOCK = 1 << 18
# Two ids of 8 bytes per edge, several times while they are looked up, and values.
EDGE_BLOCKS_BYTES = EDGES_PER_BLOCK * 128
# Memory that an export reserves once edges are ordered, at most: to move, convert and write them.
_OTHER_BYTES = 192 << 20
# Bytes per renumbered node: original id, place, row by place, and memory for sorting.
_BYTES_PER_NODE = 32

Blocks = Callable[[], Iterator[NDArray[np.uint8]]]


class NodeColumns:
    """Nodes of one type, in the order of their places. Its memory stays reserved until `work.held` closes.

    name: node type.
    count: number of nodes.
    original: original id of each place, ascending; None: places are the original ids.
    """

    def __init__(self, dataset: Dataset, node_type: str, work: WorkTools) -> None:
        self.name = node_type
        self.nodes = dataset.nodes[node_type]
        self.count = self.nodes.num_nodes
        self.original: NDArray[np.int64] | None = None
        self._dataset = dataset
        self._folder = dataset.content / "nodes" / node_type
        self._work = work
        self._places: NDArray[Any] | None = None
        self._rows: RowMover | None = None
        if dataset.manifest.node_types[node_type].original_ids:
            work.held.enter_context(work.budget.reserve("original ids", _BYTES_PER_NODE * self.count))
            self._find_places()

    @property
    def feature_dtype(self) -> np.dtype[Any]:
        """Dtype of features()."""
        return decoded_dtype(self.nodes.feature_dtype)

    def features(self) -> Iterator[NDArray[Any]]:
        """Yield features (rows, dim) in blocks; bfloat16 and int8 are converted to float32."""
        return tracked((block for (block,) in self.blocks(["features"])), self._work.progress, "features", self.count)

    def labels(self) -> Iterator[NDArray[Any]]:
        """Yield labels in blocks: classes int64 (rows), or tasks float32 (rows, tasks)."""
        return (block for (block,) in self.blocks(["labels"]))

    def blocks(self, names: Sequence[str]) -> Iterator[list[NDArray[Any]]]:
        """Yield features, labels or both, in blocks with the same rows of each."""
        table = self.nodes.feature_table()
        widths = {
            "features": 0 if table is None else table.row_stride,
            "labels": 4 * self.nodes.num_tasks or 8,
        }
        at_once = max(1, _BLOCK_BYTES // sum(widths[name] for name in names))

        def stored() -> Iterator[NDArray[np.uint8]]:
            files = [read_rows(self._folder / f"{name}.bin", widths[name], self.count, at_once) for name in names]
            return (np.concatenate(blocks, axis=1) for blocks in zip(*files, strict=True))

        rows = stored() if self._rows is None else self._move(stored, sum(widths[name] for name in names), names)
        for block in rows:
            columns = np.split(block, np.cumsum([widths[name] for name in names])[:-1], axis=1)
            yield [self._decode(name, column) for name, column in zip(names, columns, strict=True)]

    def attributes(self) -> Mapping[str, AttributeInfo]:
        """Return the attributes that have values of their own."""
        return own_attributes(self.nodes.attributes)

    def attribute(self, name: str) -> Iterator[NDArray[Any]]:
        """Yield an attribute (rows, *shape) in blocks, of the dtype of export_dtype()."""
        column = self.nodes.column(name)
        assert column is not None, "it has values of its own"
        moved = None if self._rows is None or not column.table.row_bytes else self._rows
        return read_attribute(column, moved, f"{self.name}-{name}")

    def split(self, part: str, number: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield places and rows of the nodes in a part of a split, in its order, in blocks."""
        num_splits = self.nodes.num_splits
        path = self._dataset.content / split_file(self.name, part, number, num_splits)
        for block in read_rows(path, 8, self.split_length(part, number)):
            rows = block.view("<i8").reshape(-1)
            yield self.places(rows, path), rows

    def split_length(self, part: str, number: int) -> int:
        """Return the number of nodes in a part of a split; 0: there is no such part."""
        return self._dataset.manifest.node_types[self.name].splits[number].get(part, 0)

    def places(self, rows: NDArray[Any], path: Path) -> NDArray[np.int64]:
        """Convert rows to places. path: file of the rows, for errors."""
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < self.count:
            raise damaged(path)
        places: NDArray[np.int64] = (rows if self._places is None else self._places[rows]).astype(np.int64)
        return places

    def original_ids(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the original ids of nodes by place."""
        ids: NDArray[np.int64] = places if self.original is None else self.original[places]
        return ids

    def original_blocks(self) -> Iterator[NDArray[np.int64]]:
        """Yield the original ids of all places, in blocks."""
        for start, stop in row_ranges(self.count, EDGES_PER_BLOCK):
            yield self.original_ids(np.arange(start, stop))

    def _find_places(self) -> None:
        original = self.nodes.original_ids()
        assert original is not None, "the manifest says so"
        ranking = rank_by_id(original)
        if ranking is None:
            raise damaged(self._folder / "original_ids.bin")
        self.original = ranking.ids
        if ranking.rows is not None:
            self._places = np.empty(self.count, index_dtype(self.count))
            self._places[ranking.rows] = np.arange(self.count)
            self._rows = _mover(self._places, ranking.rows, self._work)

    def _move(self, blocks: Blocks, row_bytes: int, names: Sequence[str]) -> Iterator[NDArray[np.uint8]]:
        assert self._rows is not None, "the caller has asked"
        stage = "-".join([self.name, *names])
        return self._rows.move(blocks, row_bytes, stage=stage, key=stage)

    def _decode(self, name: str, rows: NDArray[np.uint8]) -> NDArray[Any]:
        if name == "features":
            return decode_rows(rows, self.nodes.feature_dtype, self.nodes.feature_dim)
        content = np.ascontiguousarray(rows)
        return content.view("<f4") if self.nodes.num_tasks else content.view("<i8").reshape(-1)


class EdgeColumns:
    """Edges of one type, in the source's order if the dataset has the numbers of all its edges and memory suffices.

    Else they are in the order of the lists, with the numbers that the dataset has as the column edge_id.

    name: edge type.
    count: number of edges.
    dtypes: of the columns source, destination, weight, time and edge_id, those that exist.
    """

    def __init__(
        self, dataset: Dataset, edge_type: str, sources: NodeColumns, destinations: NodeColumns, work: WorkTools
    ) -> None:
        edges = self._edges = dataset.edges[edge_type]
        self.name = edge_type
        self.count = edges.num_edges
        self._topology = edges.topology
        self._folder = dataset.content / "edges" / edge_type
        self._sources = sources
        self._destinations = destinations
        self._work = work
        self._rows: RowMover | None = None
        self._stored_ids = np.dtype(np.int64)
        info = dataset.manifest.edge_types[edge_type]
        self.dtypes: dict[str, np.dtype[Any]] = {
            name: np.dtype(dtype)
            for name, dtype, exists in (
                ("source", "<i8", True),
                ("destination", "<i8", True),
                ("weight", "<f4", info.weights),
                ("time", "<i8", info.times),
            )
            if exists
        }
        numbers = edges.edge_ids()
        if numbers is not None and self.count:
            self._find_order(numbers)
            if self._rows is None:
                self.dtypes["edge_id"] = np.dtype("<i8")
                self._stored_ids = numbers.dtype

    def blocks(self, names: Sequence[str]) -> Iterator[list[NDArray[Any]]]:
        """Yield columns by name, in blocks with the same edges of each; ends are places."""
        with self._work.budget.reserve("edges being exported", EDGE_BLOCKS_BYTES):
            yield from self._in_list_order(names) if self._rows is None else self._in_source_order(names)

    def column(self, name: str) -> Iterator[NDArray[Any]]:
        """Yield one column in blocks."""
        return tracked((block for (block,) in self.blocks([name])), self._work.progress, f"edges: {name}", self.count)

    def attributes(self) -> Mapping[str, AttributeInfo]:
        """Return the attributes that have values of their own."""
        return own_attributes(self._edges.attributes)

    def attribute(self, name: str) -> Iterator[NDArray[Any]]:
        """Yield an attribute (edges, *shape) in blocks, of the dtype of export_dtype()."""
        column = self._edges.column(name)
        assert column is not None, "it has values of its own"
        moved = None if self._rows is None or not column.table.row_bytes else self._rows
        return read_attribute(column, moved, f"edges-{self.name}-{name}")

    def _in_list_order(self, names: Sequence[str]) -> Iterator[list[NDArray[Any]]]:
        files = {
            "source": (self._topology.indices_path, self._topology.index_dtype),
            "weight": (self._folder / "weights.bin", np.dtype("<f4")),
            "time": (self._folder / "times.bin", np.dtype("<i8")),
            "edge_id": (self._folder / "edge_ids.bin", self._stored_ids),
        }
        readers = {
            name: (path, read_rows(path, dtype.itemsize, self.count, EDGES_PER_BLOCK), dtype)
            for name, (path, dtype) in files.items()
            if name in names
        }
        destinations = self._list_ends() if "destination" in names else None
        for _ in row_ranges(self.count, EDGES_PER_BLOCK):
            block: list[NDArray[Any]] = []
            for name in names:
                if name == "destination":
                    assert destinations is not None, "it is among the names"
                    block.append(next(destinations))
                else:
                    path, reader, dtype = readers[name]
                    values = next(reader).view(dtype).reshape(-1)
                    values = values.astype(self.dtypes[name], copy=False) if name == "edge_id" else values
                    block.append(self._sources.places(values, path) if name == "source" else values)
            yield block

    def _in_source_order(self, names: Sequence[str]) -> Iterator[list[NDArray[Any]]]:
        assert self._rows is not None, "the caller has asked"
        row = np.dtype([(name, self.dtypes[name]) for name in names])

        def records() -> Iterator[NDArray[np.uint8]]:
            for block in self._in_list_order(names):
                rows = np.empty(len(block[0]), row)
                for name, values in zip(names, block, strict=True):
                    rows[name] = values
                yield rows.view(np.uint8).reshape(-1, row.itemsize)

        stage = f"edges-{self.name}-{'-'.join(names)}"
        for rows in self._rows.move(records, row.itemsize, stage=stage, key=stage):
            moved = np.ascontiguousarray(rows).view(row).reshape(-1)
            yield [np.ascontiguousarray(moved[name]) for name in names]

    def _list_ends(self) -> Iterator[NDArray[np.int64]]:
        """Yield the destinations of edges, from the lists' bounds, in blocks of EDGES_PER_BLOCK."""
        path = self._topology.indptr_path
        waiting: list[NDArray[np.int64]] = []
        num_waiting = first_node = begin = 0
        last = np.zeros(1, np.int64)
        for block in read_rows(path, 8, self._topology.num_nodes + 1):
            starts = block.view("<i8").reshape(-1)
            bounds = starts if first_node == 0 else np.concatenate([last, starts])
            if bounds[0] != begin or (np.diff(bounds) < 0).any() or bounds[-1] > self.count:
                raise damaged(path)
            lists = first_node - (first_node > 0)
            while begin < bounds[-1]:
                end = min(int(bounds[-1]), begin + EDGES_PER_BLOCK - num_waiting)
                rows = lists + np.searchsorted(bounds, np.arange(begin, end), side="right") - 1
                waiting.append(self._destinations.places(rows, path))
                num_waiting += end - begin
                begin = end
                if num_waiting == EDGES_PER_BLOCK:
                    yield np.concatenate(waiting)
                    waiting, num_waiting = [], 0
            last = starts[-1:].copy()
            first_node += len(starts)
        if begin != self.count:
            raise damaged(path)
        if waiting:
            yield np.concatenate(waiting)

    def _find_order(self, numbers: NDArray[Any]) -> None:
        """Load the position of each edge number, unless numbers repeat or are missing, as for undirected edges.

        Nor if the memory has no room for them next to what every export reserves later.
        """
        held, num_bytes = self._work.held, 8 * self.count
        if num_bytes + _OTHER_BYTES > self._work.budget.available_bytes:
            return
        reservation = held.enter_context(self._work.budget.reserve("edge numbers", num_bytes))
        position_of = np.full(self.count, -1, np.int64)
        for start, stop in row_ranges(self.count, EDGES_PER_BLOCK):
            block = numbers[start:stop]
            if not 0 <= int(block.min()) <= int(block.max()) < self.count:
                break
            position_of[block] = np.arange(start, stop)
        if position_of.min() < 0:
            reservation.release()
        else:
            self._rows = _mover(numbers, position_of, self._work)


def own_attributes(attributes: Mapping[str, AttributeInfo]) -> dict[str, AttributeInfo]:
    """Return the attributes that have values of their own."""
    return {name: info for name, info in attributes.items() if not info.stored_as}


def export_dtype(info: AttributeInfo) -> np.dtype[Any]:
    """Return the dtype in which an attribute is exported: its own, or float32 for bfloat16."""
    return np.dtype("<f4") if info.dtype == "bfloat16" else info.stored_dtype


def read_attribute(column: StoredColumn, rows: RowMover | None, stage: str) -> Iterator[NDArray[Any]]:
    """Yield an attribute in blocks. rows: brings it into another order; None: as it is."""
    table = column.table
    if table.row_bytes == 0:
        yield np.empty((table.num_rows, *column.info.shape), export_dtype(column.info))
        return

    def stored() -> Iterator[NDArray[np.uint8]]:
        return read_rows(table.path, table.row_bytes, table.num_rows)

    for block in stored() if rows is None else rows.move(stored, table.row_bytes, stage=stage, key=stage):
        values = column.shaped(np.ascontiguousarray(block))
        yield (values.astype("<u4") << 16).view("<f4") if column.info.dtype == "bfloat16" else values


def _mover(places: NDArray[Any], row_at: NDArray[np.int64], work: WorkTools) -> RowMover:
    return RowMover(places, row_at, work=work.folder, budget=work.budget, tools=work.tools, progress=work.progress)
