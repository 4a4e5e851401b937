"""Writes a dataset from streams of blocks: it appears whole at finish(), or nothing of it is left.

Blocks are arrays of consecutive rows. What breaks a rule of the format is refused with its node, edge or column;
`origin` names where the blocks come from in these errors. Builder methods are called once for each thing, in any
order after add_nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.build.checks import (
    RESERVED_FOR_SPLIT,
    checked_ids,
    checked_labels,
    checked_tasks,
    checked_triples,
    encoded_rows,
    renumbered_triples,
    require_count,
    split_bytes,
)
from diskhop.dataset.build.feature_ranges import FEATURES, RANGE_BYTES, FeatureRanges, Table, Values
from diskhop.dataset.build.files import SIDE_WRITER_BYTES, WRITER_BYTES, DatasetFiles
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.dataset.edges import EdgeSource
from diskhop.dataset.encoding import check_feature_dtype, row_bytes
from diskhop.dataset.fields import TYPE_NAME
from diskhop.dataset.manifest import (
    MANIFEST_NAME,
    SPLIT_NAMES,
    EdgeType,
    FeatureInfo,
    LabelInfo,
    Manifest,
    NodeType,
    Triples,
    parse_manifest,
    split_file,
)
from diskhop.dataset.sort.csc import highest_id_to_sort, sorted_lists
from diskhop.dataset.sort.external_sort import Sorting
from diskhop.dataset.sort.keys import EdgeShape
from diskhop.dataset.sort.lists import BLOCK_VALUES, ListBlock
from diskhop.dataset.sort.plan import SortLimits
from diskhop.dataset.sort.tidy import EdgeCounts, Tidying, TidyLists
from diskhop.errors import ConfigError, SourceError
from diskhop.io.atomic import Injector, StagedDirectory, require_free_space, require_parent, write_file
from diskhop.runtime.progress import Progress, silent, tracked
from diskhop.runtime.tasks import TaskTools, WorkFolder
from diskhop.runtime.workers import Workers

# Every build holds WRITER_BYTES by this name, and lists_bytes by the other while edges are sorted and written.
WRITING = "writing files"
WRITING_LISTS = "writing lists"
# A value of each column as it comes, as it is written, and what is worked out to leave some out.
_LIST_BYTES_PER_VALUE = 64


def lists_bytes(shape: EdgeShape, num_columns: int) -> int:
    """What writing lists takes beside sorting them, with so many columns of values of edges."""
    num_values = min(BLOCK_VALUES, shape.num_edges + shape.num_destinations + 1)
    return num_values * _LIST_BYTES_PER_VALUE + (1 + num_columns) * SIDE_WRITER_BYTES


class DatasetBuilder:
    """A dataset under construction; a context that removes what was not finished.

    work: where preparation that should survive an error is kept; it is removed when the dataset is finished.
    range_bytes: a longer feature table is written in ranges of this length.
    """

    def __init__(
        self,
        destination: Path,
        *,
        name: str,
        engine: Engine,
        budget: Budget,
        threads: int,
        origin: str = "",
        injector: Injector | None = None,
        progress: Progress | None = None,
        sort_limits: SortLimits | None = None,
        range_bytes: int = RANGE_BYTES,
        workers: Workers | None = None,
    ) -> None:
        if not name.isprintable() or not 1 <= len(name) <= 200:
            raise ConfigError(f"dataset name {name!r} must be 1 to 200 printable characters; give another with --name")
        self._destination = destination
        self._name = name
        self._origin = origin or name
        self._budget = budget
        self._threads = threads
        self._injector = injector
        self._progress = progress or silent
        self._sort_limits = sort_limits or SortLimits()
        self._range_bytes = range_bytes
        self._held = ExitStack()
        self._tools = TaskTools(engine, injector, workers=workers)
        self.work = WorkFolder(destination, injector)
        self._staged = StagedDirectory(destination, injector)
        self._files = DatasetFiles(self._staged.path, engine, injector)
        self._nodes: dict[str, NodeType] = {}
        self._edges: dict[str, EdgeType] = {}
        self._spilled: set[str] = set()  # types of edges that highest_id was asked of
        self._triples: Triples | None = None
        self._names: dict[str, int] = {}

    def __enter__(self) -> DatasetBuilder:
        with ExitStack() as entered:
            entered.enter_context(self.work)
            entered.enter_context(self._budget.reserve(WRITING, WRITER_BYTES))
            entered.enter_context(self._staged)
            self._held = entered.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.__exit__(kind, error, trace)

    def require_space(self, num_bytes: int, what: str = "the result") -> None:
        """Refuse now what would not fit on the disk later."""
        require_free_space(require_parent(self._destination), num_bytes, what)

    @contextmanager
    def naming(self, origin: str) -> Iterator[None]:
        """Errors raised within name this, as the file that what is added comes from."""
        outer, self._origin = self._origin, origin
        try:
            yield
        finally:
            self._origin = outer

    def add_nodes(self, node_type: str, count: int) -> None:
        """Declare a node type of at least one node."""
        self._check_type_name(node_type)
        if count < 1:
            raise SourceError(f"{self._origin}: the graph has no nodes; give it at least one")
        self._nodes[node_type] = NodeType(count=count)

    def add_features(
        self, node_type: str, blocks: Iterable[NDArray[Any]], *, dim: int, dtype: str, row_stride: int | None = None
    ) -> None:
        """Write finite values (rows, dim) as float32, float16, bfloat16 or int8; row_stride pads rows with zeros."""
        stride = self._row_stride(dtype, dim, row_stride)
        self._write_features(node_type, encoded_rows(blocks, dtype, stride, self._origin), dim, dtype, stride)

    def add_feature_column(self, node_type: str, values: Values, *, dtype: str, row_stride: int | None = None) -> None:
        """Write a column of features as add_features does; a large one goes on after a crash where it was."""
        num_rows, dim = values.shape
        stride = self._row_stride(dtype, dim, row_stride)
        table = Table(num_rows=num_rows, dim=dim, dtype=dtype, row_stride=stride, origin=self._origin)
        if table.num_bytes <= self._range_bytes:
            blocks = tracked(values.blocks(), self._progress, FEATURES, num_rows)
            self.add_features(node_type, blocks, dim=dim, dtype=dtype, row_stride=stride)
            return
        self._check_count(node_type, num_rows, "feature rows")
        tools = replace(self._tools, pool=self._files.pool)
        ranges = FeatureRanges(values, table, node_type, self.work, tools, self._range_bytes)
        sums = ranges.write(self._budget, self._threads, self._progress)
        self._files.add(f"nodes/{node_type}/features.bin", ranges.path, sums)
        self._update(node_type, features=FeatureInfo(dtype=dtype, dim=dim, row_stride=stride))

    def add_encoded_features(
        self, node_type: str, blocks: Iterable[NDArray[np.uint8]], *, dim: int, dtype: str
    ) -> None:
        """Write rows as encode_rows makes them (rows, row bytes) of finite values."""
        self._write_features(node_type, blocks, dim, dtype, row_bytes(dtype, dim))

    def add_labels(self, node_type: str, blocks: Iterable[NDArray[Any]], num_classes: int | None = None) -> None:
        """Write classes (rows), -1 for nodes without one. Without num_classes it is the highest label + 1."""
        used = set[int]()
        relative = f"nodes/{node_type}/labels.bin"
        written = self._files.write(relative, checked_labels(blocks, num_classes, used, self._origin))
        self._check_count(node_type, written // 8, "labels")
        if num_classes is None:
            num_classes = max(used, default=-1) + 1
            if num_classes > 2 * len(used):
                raise SourceError(
                    f"{self._origin}: label {num_classes - 1} is out of range: only {len(used)} classes have nodes; "
                    "number classes from 0 without gaps, or give num_classes"
                )
        self._update(node_type, labels=LabelInfo(num_classes=num_classes, num_tasks=0))

    def add_tasks(self, node_type: str, blocks: Iterable[NDArray[Any]], num_tasks: int) -> None:
        """Write labels (rows, num_tasks) of 0 and 1, NaN where there is none."""
        if num_tasks < 1:
            raise SourceError(f"{self._origin}: labels have {num_tasks} columns; give at least one task")
        written = self._files.write(f"nodes/{node_type}/labels.bin", checked_tasks(blocks, self._origin))
        self._check_count(node_type, written // (4 * num_tasks), "labels")
        self._update(node_type, labels=LabelInfo(num_classes=0, num_tasks=num_tasks))

    def add_split(
        self,
        node_type: str,
        part: str,
        blocks: Iterable[NDArray[Any]],
        number: int = 0,
        num_splits: int = 1,
        *,
        new_ids: NDArray[Any] | None = None,
    ) -> None:
        """Write the ids of a part (train, valid, test) of one of num_splits splits, in the order given.

        new_ids: what each id has become.
        """
        if part not in SPLIT_NAMES or not 0 <= number < num_splits:
            raise ConfigError(
                f"{self._origin}: split '{part}' {number} of {num_splits} is not one that the format knows"
            )
        known = self._nodes[node_type].splits or ({},) * num_splits
        if len(known) != num_splits:
            raise SourceError(
                f"{self._origin}: has {num_splits} splits of '{part}' and {len(known)} of others; give as many"
            )
        shown = f"split '{part}'" + (f" {number}" if num_splits > 1 else "")
        num_nodes = self._nodes[node_type].count
        with self._budget.reserve(RESERVED_FOR_SPLIT, split_bytes(num_nodes)):
            ids = checked_ids(blocks, num_nodes, shown, self._origin)
            if new_ids is not None:
                ids = (new_ids[block].astype("<i8") for block in ids)
            written = self._files.write(split_file(node_type, part, number, num_splits), ids)
        if written == 0:
            raise SourceError(f"{self._origin}: {shown} is empty; give it nodes or leave it out")
        splits = [dict(split) for split in known]
        splits[number][part] = written // 8
        self._update(node_type, splits=tuple(splits))

    def add_original_ids(self, node_type: str, blocks: Iterable[NDArray[Any]], order: str = "original") -> None:
        """Write the id that each node had before it was renumbered; order "hot" if that was by hot order."""
        ids = (np.ascontiguousarray(block, dtype="<i8") for block in blocks)
        written = self._files.write(f"nodes/{node_type}/original_ids.bin", ids)
        self._check_count(node_type, written // 8, "original ids")
        self._update(node_type, original_ids=True, order=order)

    def highest_id(self, edge_type: str, edges: EdgeSource, *, is_numbered: bool, origin: str) -> int:
        """The highest id at either end of edges that will be added, between nodes of one type; -1 where there are none.

        They are read once for both where they go by way of the disk. is_numbered: with edge ids, weights or times.
        """
        self._spilled.add(edge_type)
        return highest_id_to_sort(edges, is_numbered, origin, self._sorting(edge_type))

    def add_edge_list(
        self,
        edge_type: str,
        source: str,
        destination: str,
        edges: EdgeSource,
        *,
        keep_edge_ids: bool = False,
        weights: NDArray[Any] | None = None,
        times: NDArray[Any] | None = None,
        tidying: Tidying | None = None,
        origin: str = "",
    ) -> EdgeCounts:
        """Sort and write edges, within the budget, with finite weights and whole times (edges), by number, if given.

        Parallel edges and loops are kept, unless tidying says otherwise; where it is given they are counted. With edges
        both ways, 2 e and 2 e + 1 are edge e (UndirectedEdges), which is what its weight, time and number go by. Raises
        SourceError, naming `origin` (default: the builder's), for the first id that is out of range.
        """
        ways = 2 if tidying is not None and tidying.both_ways else 1
        if weights is not None:
            self._check_weights(weights, edges.num_edges // ways)
        if times is not None:
            self._check_times(times, edges.num_edges // ways)
        self._check_type_name(edge_type)
        shape = EdgeShape(
            num_sources=self._nodes[source].count,
            num_destinations=self._nodes[destination].count,
            num_edges=edges.num_edges,
            is_numbered=keep_edge_ids or weights is not None or times is not None,
            counts_are_found=edge_type in self._spilled,
            origin=origin or self._origin,
        )
        values: dict[str, Callable[[NDArray[np.int64]], NDArray[Any]]] = {}
        if keep_edge_ids:
            values["edge_ids"] = lambda numbers: numbers // ways
        if weights is not None:
            values["weights"] = lambda numbers: weights[numbers // ways].astype("<f4")
        if times is not None:
            values["times"] = lambda numbers: times[numbers // ways].astype("<i8")
        with (
            self._budget.reserve(WRITING_LISTS, lists_bytes(shape, len(values))),
            sorted_lists(edges, shape, self._sorting(edge_type)) as blocks,
        ):
            tidy = None if tidying is None else TidyLists(blocks, tidying)
            count = self._write_lists(edge_type, blocks if tidy is None else tidy.blocks(), shape, values)
        self._edges[edge_type] = EdgeType(
            source=source,
            destination=destination,
            count=count,
            index_dtype=shape.index_dtype.name,
            edge_ids="edge_ids" in values,
            weights="weights" in values,
            times="times" in values,
        )
        return EdgeCounts() if tidy is None else tidy.counts

    def _sorting(self, edge_type: str) -> Sorting:
        return Sorting(
            work=self.work,
            stage=f"sort-{edge_type}",
            budget=self._budget,
            threads=self._threads,
            tools=self._tools,
            progress=self._progress,
            limits=self._sort_limits,
        )

    def _write_lists(
        self,
        edge_type: str,
        blocks: Iterator[ListBlock],
        shape: EdgeShape,
        values: Mapping[str, Callable[[NDArray[np.int64]], NDArray[Any]]],
    ) -> int:
        """All files of the lists side by side; values: of edges, by number. Returns how many edges there are."""
        folder = f"edges/{edge_type}"
        with ExitStack() as files:
            indices = files.enter_context(self._files.open(f"{folder}/indices.bin"))
            indptr = files.enter_context(self._files.open(f"{folder}/indptr.bin", SIDE_WRITER_BYTES))
            columns = [
                (files.enter_context(self._files.open(f"{folder}/{name}.bin", SIDE_WRITER_BYTES)), values_of)
                for name, values_of in values.items()
            ]
            for block in blocks:
                indices.append(block.indices)
                indptr.append(block.starts)
                for file, values_of in columns:
                    assert block.numbers is not None
                    file.append(values_of(block.numbers))
        assert indptr.num_bytes == 8 * (shape.num_destinations + 1), "one entry for each node and one more"
        return indices.num_bytes // shape.index_dtype.itemsize

    def add_triples(
        self,
        node_type: str,
        part: str,
        blocks: Iterable[NDArray[Any]],
        num_relations: int | None = None,
        *,
        new_ids: NDArray[Any] | None = None,
    ) -> None:
        """Write (source, relation, destination) rows of a part. Without num_relations it is the highest + 1.

        new_ids: what each node's id has become.
        """
        most = [self._triples.num_relations if self._triples else 0]
        triples = checked_triples(blocks, part, self._nodes[node_type].count, num_relations, most, self._origin)
        if new_ids is not None:
            triples = (renumbered_triples(block, new_ids) for block in triples)
        written = self._files.write(f"triples/{part}.bin", triples)
        if written == 0:
            raise SourceError(f"{self._origin}: triples '{part}' are empty; give some or leave them out")
        parts = {**(self._triples.parts if self._triples else {}), part: written // 24}
        if num_relations is None:
            num_relations = most[0]
        self._triples = Triples(node_type=node_type, num_relations=num_relations, parts=parts)

    def add_names(self, what: str, blocks: Iterable[NDArray[np.uint8]], count: int) -> None:
        """Write `count` names as UTF-8 lines, the name of id 0 first."""
        self._files.write(f"names/{what}.txt", blocks)
        self._names[what] = count

    def finish(self) -> Dataset:
        """Put everything on the disk, the manifest last, give the folder its name and open it.

        Raises FormatError, and leaves nothing, for a number that no reader of the format would take.
        """
        checksums = self._files.write_checksums()
        manifest = Manifest(
            name=self._name,
            node_types=self._nodes,
            edge_types=self._edges,
            files=self._files.entries(),
            checksums=checksums,
            triples=self._triples,
            names=self._names,
        )
        content = manifest.to_bytes()
        parse_manifest(content, self._origin)
        write_file(self._staged.path / MANIFEST_NAME, content, self._injector)
        self._staged.publish()
        self.work.remove()
        return open_dataset(self._destination)

    def _write_features(
        self, node_type: str, rows: Iterable[NDArray[np.uint8]], dim: int, dtype: str, row_stride: int
    ) -> None:
        written = self._files.write(f"nodes/{node_type}/features.bin", rows)
        self._check_count(node_type, written // row_stride, "feature rows")
        self._update(node_type, features=FeatureInfo(dtype=dtype, dim=dim, row_stride=row_stride))

    def _row_stride(self, dtype: str, dim: int, row_stride: int | None) -> int:
        check_feature_dtype(dtype)
        num_bytes = row_bytes(dtype, dim)
        stride = num_bytes if row_stride is None else row_stride
        if dim < 1 or stride < num_bytes:
            raise ConfigError(
                f"{self._origin}: row_stride {stride} is less than the {num_bytes} bytes of a row (dim {dim})"
            )
        return stride

    def _update(self, node_type: str, **changes: Any) -> None:
        self._nodes[node_type] = replace(self._nodes[node_type], **changes)

    def _check_type_name(self, name: str) -> None:
        if not TYPE_NAME.fullmatch(name):
            raise ConfigError(f"type name {name!r} must be letters, digits and _ . + = -, at most 100; rename the type")

    def _check_count(self, node_type: str, count: int, what: str) -> None:
        require_count(count, self._nodes[node_type].count, what, self._origin)

    def _check_weights(self, weights: NDArray[Any], num_edges: int) -> None:
        if weights.shape != (num_edges,):
            raise SourceError(
                f"{self._origin}: has weights of shape {weights.shape} for {num_edges} edges; give one for each"
            )
        bad = np.flatnonzero(~np.isfinite(weights))
        if len(bad):
            raise SourceError(f"{self._origin}: weight of edge {bad[0]} is {weights[bad[0]]}; weights must be finite")

    def _check_times(self, times: NDArray[Any], num_edges: int) -> None:
        if times.shape != (num_edges,) or times.dtype.kind not in "iu":
            raise SourceError(
                f"{self._origin}: has times of shape {times.shape} and {times.dtype} for {num_edges} edges; give one "
                "whole number for each"
            )
