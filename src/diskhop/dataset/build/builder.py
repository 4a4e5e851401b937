"""Writing a dataset from streams of blocks: it appears complete at finish(), or not at all.

Blocks are arrays of consecutive rows. Invalid values are refused with their node, edge or column; `origin` names the
source of the blocks in errors. Each part of a dataset is added once, in any order after add_nodes().
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.adj_info import AdjInfo
from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.build.attributes import NodesOrEdges, write_attribute
from diskhop.dataset.build.checks import (
    RESERVED_FOR_SPLIT,
    check_split,
    check_type_name,
    checked_ids,
    checked_row_stride,
    encoded_rows,
    require_count,
    split_bytes,
)
from diskhop.dataset.build.edge_lists import EdgeColumns, write_edge_lists
from diskhop.dataset.build.feature_ranges import FEATURES, RANGE_BYTES, FeatureRanges, Table, Values
from diskhop.dataset.build.files import WRITER_BYTES, DatasetFiles
from diskhop.dataset.build.labels import write_classes, write_tasks, write_values
from diskhop.dataset.build.triples import write_triples
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.dataset.edges import EdgeSource
from diskhop.dataset.encoding import row_bytes
from diskhop.dataset.manifest import (
    CHECKSUMS_NAME,
    MANIFEST_NAME,
    EdgeType,
    FeatureInfo,
    LabelInfo,
    Manifest,
    NodeType,
    Triples,
    split_file,
)
from diskhop.dataset.manifest_file import parse_manifest
from diskhop.dataset.sort.csc import highest_id_to_sort
from diskhop.dataset.sort.external_sort import Sorting
from diskhop.dataset.sort.keys import EdgeShape
from diskhop.dataset.sort.plan import SortLimits
from diskhop.dataset.sort.tidy import EdgeCounts, Tidying
from diskhop.errors import ConfigError, SourceError
from diskhop.io.atomic import Injector, require_free_space, require_parent, write_file
from diskhop.io.destinations import FolderKind, StagedDirectory
from diskhop.runtime.jobs import Executor
from diskhop.runtime.progress import Progress, silent, tracked
from diskhop.runtime.tasks import TaskTools, WorkFolder

# Name of the reservation of WRITER_BYTES during a build.
WRITING = "writing files"
DATASET = FolderKind(
    "a dataset",
    MANIFEST_NAME,
    (MANIFEST_NAME, CHECKSUMS_NAME, "nodes", "edges", "triples", "names", "derived", "generation-*"),
)


class DatasetBuilder:
    """A dataset under construction; its context removes an unfinished one.

    work: folder of stages that survive an error; it is removed once the dataset is finished.
    range_bytes: longer feature tables are written in ranges of this length.
    overwrite: whether a dataset at the destination is replaced, with its derived files.
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
        executor: Executor | None = None,
        overwrite: bool = False,
    ) -> None:
        if not name.isprintable() or not 1 <= len(name) <= 200:
            raise ConfigError(
                f"dataset name {name!r} must be 1 to 200 printable characters; choose another with --name"
            )
        self._destination = destination
        self._name = name
        self._origin = origin or name
        self._budget = budget
        self._threads = threads
        self._injector = injector
        self._progress = progress or silent
        self._sort_limits = sort_limits or SortLimits()
        self._range_bytes = range_bytes
        self._contexts = ExitStack()
        self._tools = TaskTools(engine, injector, executor=executor)
        self.work = WorkFolder(destination, injector)
        self._staged = StagedDirectory(destination, DATASET, overwrite=overwrite, injector=injector)
        self._files = DatasetFiles(self._staged.path, engine, injector)
        self._nodes: dict[str, NodeType] = {}
        self._edges: dict[str, EdgeType] = {}
        self._spilled: set[str] = set()  # edge types that highest_id() spilled
        self._triples: Triples | None = None
        self._names: dict[str, int] = {}

    def __enter__(self) -> DatasetBuilder:
        with ExitStack() as entered:
            entered.enter_context(self.work)
            entered.enter_context(self._budget.reserve(WRITING, WRITER_BYTES))
            entered.enter_context(self._staged)
            self._contexts = entered.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._contexts.__exit__(kind, error, trace)

    def require_space(self, num_bytes: int, what: str = "the result") -> None:
        """Raise DestinationError now if num_bytes would not fit on the disk."""
        require_free_space(require_parent(self._destination), num_bytes, what)

    @contextmanager
    def naming(self, origin: str) -> Iterator[None]:
        """Name `origin` as the source of blocks in errors, for the duration of a context."""
        outer, self._origin = self._origin, origin
        try:
            yield
        finally:
            self._origin = outer

    def add_nodes(self, node_type: str, count: int, *, states_count: bool = False) -> None:
        """Declare a node type of at least one node. states_count: see NodeType."""
        check_type_name(node_type)
        if count < 1:
            raise SourceError(f"{self._origin}: the graph has no nodes; a graph needs at least one")
        self._nodes[node_type] = NodeType(count=count, states_count=states_count)

    def add_features(
        self, node_type: str, blocks: Iterable[NDArray[Any]], *, dim: int, dtype: str, row_stride: int | None = None
    ) -> None:
        """Write finite values (rows, dim) as float32, float16, bfloat16 or int8; row_stride pads rows with zeros."""
        stride = checked_row_stride(dtype, dim, row_stride, self._origin)
        self._write_features(node_type, encoded_rows(blocks, dtype, stride, self._origin), dim, dtype, stride)

    def add_feature_column(self, node_type: str, values: Values, *, dtype: str, row_stride: int | None = None) -> None:
        """Write a column of features like add_features(); a large one resumes after a crash."""
        num_rows, dim = values.shape
        stride = checked_row_stride(dtype, dim, row_stride, self._origin)
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
        """Write rows (rows, row bytes) that encode_rows() encoded from finite values."""
        self._write_features(node_type, blocks, dim, dtype, row_bytes(dtype, dim))

    def add_labels(self, node_type: str, blocks: Iterable[NDArray[Any]], num_classes: int | None = None) -> None:
        """Write classes (rows), -1 for none. num_classes defaults to the highest label + 1."""
        self._add_labels(node_type, *write_classes(self._files, node_type, blocks, num_classes, self._origin))

    def add_tasks(self, node_type: str, blocks: Iterable[NDArray[Any]], num_tasks: int) -> None:
        """Write labels (rows, num_tasks) of 0 and 1, NaN for none."""
        self._add_labels(node_type, *write_tasks(self._files, node_type, blocks, num_tasks, self._origin))

    def add_values(self, node_type: str, blocks: Iterable[NDArray[Any]], num_columns: int) -> None:
        """Write labels (rows, num_columns) of any finite numbers, NaN for none."""
        self._add_labels(node_type, *write_values(self._files, node_type, blocks, num_columns, self._origin))

    def _add_labels(self, node_type: str, count: int, info: LabelInfo) -> None:
        self._check_count(node_type, count, "labels")
        self._update(node_type, labels=info)

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
        """Write the ids of a part (train, valid, test) of one of num_splits splits, in the given order.

        new_ids: new id of each node, if nodes were renumbered.
        """
        known = self._nodes[node_type].splits or ({},) * num_splits
        check_split(part, number, num_splits, len(known), self._origin)
        shown = f"split '{part}'" + (f" {number}" if num_splits > 1 else "")
        num_nodes = self._nodes[node_type].count
        with self._budget.reserve(RESERVED_FOR_SPLIT, split_bytes(num_nodes)):
            ids = checked_ids(blocks, num_nodes, shown, self._origin)
            if new_ids is not None:
                ids = (new_ids[block].astype("<i8") for block in ids)
            written = self._files.write(split_file(node_type, part, number, num_splits), ids)
        if written == 0:
            raise SourceError(f"{self._origin}: {shown} is empty; add nodes or remove it")
        splits = [dict(split) for split in known]
        splits[number][part] = written // 8
        self._update(node_type, splits=tuple(splits))

    def add_original_ids(self, node_type: str, blocks: Iterable[NDArray[Any]], order: str = "original") -> None:
        """Write the source id of each renumbered node. order: "hot" if nodes are in hot order."""
        ids = (np.ascontiguousarray(block, dtype="<i8") for block in blocks)
        written = self._files.write(f"nodes/{node_type}/original_ids.bin", ids)
        self._check_count(node_type, written // 8, "original ids")
        self._update(node_type, original_ids=True, order=order)

    def add_positions(self, node_type: str, blocks: Iterable[NDArray[Any]]) -> None:
        """Write the position in the source of each renumbered node, where its id does not tell."""
        positions = (np.ascontiguousarray(block, dtype="<i8") for block in blocks)
        written = self._files.write(f"nodes/{node_type}/positions.bin", positions)
        self._check_count(node_type, written // 8, "positions")
        self._update(node_type, positions=True)

    def add_attribute(
        self, kind: NodesOrEdges, type_name: str, name: str, info: AttributeInfo, blocks: Iterable[NDArray[Any]] = ()
    ) -> None:
        """Write an attribute (rows, *shape) of nodes, or of edges in the order of their lists.

        An attribute that is stored as another column has no blocks, and is added after that column.
        """
        types: dict[str, Any] = self._nodes if kind == "nodes" else self._edges
        known = types[type_name]
        write_attribute(self._files, f"{kind}/{type_name}", name, info, blocks, known.count, self._origin)
        types[type_name] = replace(known, attributes={**known.attributes, name: info})

    def highest_id(self, edge_type: str, edges: EdgeSource, *, is_numbered: bool, origin: str) -> int:
        """Return the highest id at either end of edges to add, between nodes of one type; -1 without edges.

        Edges that are sorted on disk are read only once for both calls. is_numbered: whether they have values or ids.
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
        edge_id_dtype: str = "",
        edge_ids: NDArray[Any] | None = None,
        weights: NDArray[Any] | None = None,
        times: NDArray[Any] | None = None,
        tidying: Tidying | None = None,
        tidied: Tidying | None = None,
        numbers: DatasetFiles | None = None,
        origin: str = "",
        adj_t: AdjInfo | None = None,
    ) -> EdgeCounts:
        """Sort and write edges, with optional finite weights and whole times by edge number.

        edge_id_dtype: dtype in which to store the numbers of the edges, see manifest.edge_id_dtype(); "" for not.
        edge_ids: numbers to store in place of their own, by edge number.
        tidying: edges to leave out; loops and duplicates are only counted with it. If it has edges in both directions
        (UndirectedEdges), 2 e and 2 e + 1 have the number, weight and time of edge e.
        tidied: what was done to the edges before, for the manifest.
        numbers: where to write NUMBERS_FILE too, for attributes.
        adj_t: see EdgeType.
        Raises SourceError, naming `origin` (default: that of the builder), for the first id out of range.
        """
        columns = EdgeColumns(
            edge_id_dtype=edge_id_dtype,
            edge_ids=edge_ids,
            weights=weights,
            times=times,
            ways=2 if tidying is not None and tidying.both_ways else 1,
        )
        columns.check(edges.num_edges, self._origin)
        check_type_name(edge_type)
        shape = EdgeShape(
            num_sources=self._nodes[source].count,
            num_destinations=self._nodes[destination].count,
            num_edges=edges.num_edges,
            is_numbered=not columns.are_empty or numbers is not None,
            counts_are_found=edge_type in self._spilled,
            origin=origin or self._origin,
        )
        count, counts = write_edge_lists(
            self._files,
            f"edges/{edge_type}",
            edges,
            shape,
            columns,
            tidying,
            self._sorting(edge_type),
            numbers,
        )
        tidied = tidied or tidying or Tidying()
        self._edges[edge_type] = EdgeType(
            source=source,
            destination=destination,
            count=count,
            index_dtype=shape.index_dtype.name,
            edge_id_dtype=edge_id_dtype,
            weights=weights is not None,
            times=times is not None,
            both_ways=tidied.both_ways,
            without_loops=tidied.drop_loops,
            without_repeats=tidied.drop_duplicates,
            adj_t=adj_t,
        )
        return counts

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

    def add_triples(
        self,
        node_type: str,
        part: str,
        blocks: Iterable[NDArray[Any]],
        num_relations: int | None = None,
        *,
        new_ids: NDArray[Any] | None = None,
    ) -> None:
        """Write (source, relation, destination) rows of a part. num_relations defaults to the highest + 1.

        new_ids: new id of each node, if nodes were renumbered.
        """
        self._triples = write_triples(
            self._files,
            node_type,
            part,
            blocks,
            self._triples,
            num_nodes=self._nodes[node_type].count,
            num_relations=num_relations,
            new_ids=new_ids,
            origin=self._origin,
        )

    def add_names(self, what: str, blocks: Iterable[NDArray[np.uint8]], count: int) -> None:
        """Write `count` names, given as lines (see name_lines.py), in the order of ids."""
        self._files.write(f"names/{what}.txt", blocks)
        self._names[what] = count

    def finish(self) -> Dataset:
        """Write the manifest, publish the dataset and open it.

        Raises FormatError, and leaves nothing, if the manifest would be invalid.
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

    def _update(self, node_type: str, **changes: Any) -> None:
        self._nodes[node_type] = replace(self._nodes[node_type], **changes)

    def _check_count(self, node_type: str, count: int, what: str) -> None:
        require_count(count, self._nodes[node_type].count, what, self._origin)
