"""Building of hop tables along paths over types, in bounded memory: some columns of all rows at a time.

For each path and block of columns, the features of its first type are read, and every step averages them over the lists
of an edge type, which are read a part at a time. A mean is a sum in the order of the list over its length, so that no
value depends on the budget or on threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine, aggregate
from diskhop.budget import Budget, format_bytes, parse_sizes
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.dataset.edge_lists import EdgeLists
from diskhop.dataset.edge_set import TopologyFiles
from diskhop.dataset.encoding import encode_rows, too_large
from diskhop.dataset.merge import MergeTools, merged_lists
from diskhop.derived.clean import TABLES_FILE
from diskhop.derived.make import make_derived, make_once
from diskhop.derived.scratch import scratch_path
from diskhop.errors import ConfigError
from diskhop.hops.make.propagate import Propagated
from diskhop.hops.make.row_numbers import stored_numbers, write_numbers
from diskhop.hops.make.tiles import row_major, sum_pages
from diskhop.hops.paths import PathSpec, TypePath, require_features
from diskhop.hops.spec import find_rows, folder_name
from diskhop.hops.stream.features import FeatureReader, reading_features_bytes
from diskhop.hops.tables import (
    TILE_COLUMNS,
    HopTables,
    TableFile,
    TableOperator,
    TableShape,
    encode_hop_tables,
    open_hop_tables,
    table_names,
)
from diskhop.io.atomic import require_free_space, sync_file, write_file
from diskhop.io.engine import open_engine
from diskhop.protocols import NodeRows, SourceIds
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools
from diskhop.system.memory import default_memory_bytes, default_threads

_PART_ROWS = 4096
# Edges of a part of a list: sources as they are stored and as int32, and starts of up to as many lists.
_EDGES_PER_PART = 1 << 18
_PART_BYTES = 40 * _EDGES_PER_PART
# Of a value that is read or kept: copies while it is checked or encoded.
_ENCODING_BYTES = 24
_PROGRESS = "averaging along paths"


def propagate_paths(
    dataset: Dataset | Path | str,
    spec: PathSpec,
    budget: Budget | None = None,
    *,
    memory: int | str | None = None,
    disk: int | str | None = None,
    scratch: Path | str | None = None,
    threads: int | None = None,
    engine: Engine | str = "auto",
    progress: Progress = silent,
    on_begin: Callable[[], None] = lambda: None,
) -> Propagated:
    """Build hop tables along paths, or find existing ones: those of the target's features, then one per path.

    on_begin: called before anything is written. All else: see propagate().

    Raises ConfigError, BudgetError, DestinationError.
    """
    dataset = as_dataset(dataset)
    engine = open_engine(engine).engine if isinstance(engine, str) else engine
    sizes = parse_sizes(memory=memory, disk=disk)
    budget = budget or Budget(sizes.get("memory_bytes") or default_memory_bytes())
    threads, disk_bytes = threads or default_threads(), sizes.get("disk_bytes") or 0
    paths, folder = spec.parsed(dataset), scratch_path(dataset.path, scratch)
    require_features(dataset, spec.target, f"--target {spec.target}: the first table")
    rows = find_rows(dataset.of_node_type(spec.target), spec.rows, budget)
    destination = folder / folder_name(spec.key(dataset.hash, rows))
    started = time.perf_counter()
    steps: list[dict[str, Any]] = []
    if not destination.exists():
        shape = path_shape(dataset, spec, paths, dataset.nodes[spec.target].num_nodes if rows is None else len(rows))
        _require_disk(len(paths) * shape.num_bytes, len(paths), disk_bytes)
        tools = MergeTools(scratch=folder, engine=engine, budget=budget, threads=threads, progress=progress)
        lists = merged_lists(dataset, tools, spec.reversed_types)
        making = _Making(dataset, spec, paths, rows, shape, lists, budget, TaskTools(engine), threads, progress)

        def build(made: Path, _work: object) -> None:
            on_begin()
            require_free_space(made, len(paths) * shape.num_bytes, "tables along paths")
            num_read = making.write(made)
            seconds, num_written = time.perf_counter() - started, len(paths) * shape.num_bytes
            steps.append({"step": _PROGRESS, "seconds": seconds, "bytes_read": num_read, "bytes_written": num_written})

        make_once(destination, partial(make_derived, destination, spec.key(dataset.hash, rows), build), progress)
    return Propagated(open_hop_tables(destination, dataset.hash), None, steps, {})


def find_path_tables(dataset: Dataset, spec: PathSpec, scratch: Path | None, budget: Budget) -> HopTables | None:
    """Open the tables that propagate_paths() built for a spec; None if there are none. Raises ConfigError."""
    rows = find_rows(dataset.of_node_type(spec.target), spec.rows, budget)
    path = scratch_path(dataset.path, scratch) / folder_name(spec.key(dataset.hash, rows))
    return open_hop_tables(path, dataset.hash) if path.exists() else None


def _require_disk(num_bytes: int, num_tables: int, disk_bytes: int) -> None:
    if disk_bytes and num_bytes > disk_bytes:
        raise ConfigError(
            f"{num_tables} tables take {format_bytes(num_bytes)} of disk space, and --disk allows "
            f"{format_bytes(disk_bytes)}: name fewer paths, or use --dtype float16"
        )


def path_shape(dataset: Dataset, spec: PathSpec, paths: Sequence[TypePath], num_rows: int) -> TableShape:
    """Return the layout of every table: as wide as the widest features, to which others are filled up by zeros."""
    dim = max(dataset.nodes[path.text.partition(",")[0]].feature_dim for path in paths)
    shape = TableShape(num_rows=num_rows, dim=dim, dtype=spec.dtype, tile_columns=TILE_COLUMNS)
    return row_major(shape, num_rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Making:
    """One call that has tables to build.

    rows: rows of the target to keep; None for all. lists: merged lists. shape: of a table that is kept.
    """

    dataset: Dataset
    spec: PathSpec
    paths: Sequence[TypePath]
    rows: NodeRows | None
    shape: TableShape
    lists: TopologyFiles
    budget: Budget
    tools: TaskTools
    threads: int
    progress: Progress

    def write(self, folder: Path) -> int:
        """Write the tables and their manifest; return the bytes that were read."""
        operators = tuple(
            TableOperator(name=f"path-{number}", parameters={"kind": "path", "path": path.text})
            for number, path in enumerate(self.paths[1:], 1)
        )
        files, num_read = [], 0
        for number, (path, name) in enumerate(zip(self.paths, table_names(operators, 1), strict=True)):
            num_read += self._write_table(path, folder / name)
            sync_file(folder / name)
            checksum = sum_pages(folder / name, 0, self.shape.num_bytes).checksum
            files.append(TableFile(name=name, num_bytes=self.shape.num_bytes, checksum=checksum))
            self.progress(_PROGRESS, number + 1, len(self.paths))
        labelled = self.dataset.of_node_type(self.spec.target)
        write_numbers(folder, labelled, self.rows, self.budget, self.tools)
        ids, positions = stored_numbers(folder, labelled, self.shape.num_rows)
        tables = HopTables(
            path=folder,
            dataset_hash=self.dataset.hash,
            operators=operators,
            hops=1,
            shape=self.shape,
            files=tuple(files),
            num_nodes=labelled.num_nodes,
            rows=self.rows,
            ids=None if ids is None else SourceIds(ids),
            positions=positions,
        )
        write_file(folder / TABLES_FILE, encode_hop_tables(tables))
        return num_read

    def _write_table(self, path: TypePath, file: Path) -> int:
        """Write the table of a path, some columns at a time; return the bytes that were read."""
        with file.open("wb") as opened:
            opened.truncate(self.shape.num_bytes)
        nodes = self.dataset.nodes[path.text.partition(",")[0]]
        table, types = nodes.feature_table(), self.lists.types
        assert table is not None
        assert types is not None
        chain = [nodes.num_nodes, *(types.num_nodes[types.edges[step].destination] for step in path.steps)]
        # Rows before and after a step, and a part of those that are read or kept.
        column_bytes = 4 * max(sum(pair) for pair in zip(chain, [*chain[1:], 0], strict=True))
        column_bytes += _ENCODING_BYTES * min(_PART_ROWS, max(chain))
        reading_bytes = reading_features_bytes(table.row_stride, nodes.feature_dim, _PART_ROWS) + _PART_BYTES
        self.budget.require({"columns of a path": column_bytes, "reading features and lists": reading_bytes})
        columns = min(nodes.feature_dim, (self.budget.available_bytes - reading_bytes) // column_bytes)
        reader = FeatureReader(table, nodes.feature_dtype, nodes.feature_dim, _PART_ROWS, self.tools.engine)
        along = [EdgeLists.of_merged(self.lists, step) for step in path.steps]
        blocks = list(row_ranges(nodes.feature_dim, columns))
        with self.budget.reserve("averaging along paths", columns * column_bytes + reading_bytes):
            for first, stop in blocks:
                values = np.empty((nodes.num_nodes, stop - first), np.float32)
                start = 0
                for part in reader.parts(range(0, nodes.num_nodes, _PART_ROWS), nodes.num_nodes):
                    self._require_finite(part[:, first:stop], table.path)
                    values[start : start + len(part)] = part[:, first:stop]
                    start += len(part)
                for lists in along:
                    values = self._average(lists, values)
                self._keep(values, file, first)
        item_bytes = self.lists.index_dtype.itemsize
        lists_bytes = sum(8 * lists.num_lists + item_bytes * lists.num_edges for lists in along)
        return len(blocks) * (table.num_rows * table.row_stride + lists_bytes)

    def _average(self, lists: EdgeLists, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the means of the rows of each list, zeros for an empty one."""
        starts, sources = lists.map_starts(), lists.map_sources()
        means = np.zeros((lists.num_lists, values.shape[1]), np.float32)
        row = 0
        shift = lists.offset - lists.rows.start
        while row < lists.num_lists:
            fitting = int(np.searchsorted(starts, starts[row] + _EDGES_PER_PART, side="right")) - 1
            stop = min(max(row + 1, fitting), row + _EDGES_PER_PART, lists.num_lists)
            own = sources[starts[row] - lists.first_edge : starts[stop] - lists.first_edge]
            if len(own) > _EDGES_PER_PART:
                self._long_mean(own, shift, values, means[row:stop])
            else:
                indptr = (starts[row : stop + 1] - starts[row]).astype(np.int32)
                places = (own.astype(np.int64) + shift).astype(np.int32)
                aggregate(indptr, places, None, None, True, None, values, means[row:stop], self.threads)
            row = stop
        return means

    def _long_mean(
        self, sources: NDArray[Any], shift: int, values: NDArray[np.float32], mean: NDArray[np.float32]
    ) -> None:
        """Write the mean over a list that is longer than a part, (1, columns)."""
        part = np.empty_like(mean)
        for start, stop in row_ranges(len(sources), _EDGES_PER_PART):
            places = (sources[start:stop].astype(np.int64) + shift).astype(np.int32)
            bounds = np.array([0, stop - start], np.int32)
            aggregate(bounds, places, None, None, False, None, values, part, self.threads)
            mean += part
        mean /= np.float32(len(sources))

    def _require_finite(self, values: NDArray[np.float32], path: Path) -> None:
        if not np.isfinite(values).all():
            raise ConfigError(f"{path}: has values that are not finite; correct the features and import them again")
        if too_large(values, self.spec.dtype).any():
            raise ConfigError(f"{path}: has values that {self.spec.dtype} cannot hold; use --dtype float32")

    def _keep(self, values: NDArray[np.float32], file: Path, first: int) -> None:
        """Write columns from `first` on of the kept rows."""
        shape, item_bytes = self.shape, self.shape.item_bytes
        mapped = np.memmap(file, np.uint8, "r+", shape=(shape.num_bytes,))
        rows = mapped[: shape.num_rows * shape.row_bytes].reshape(shape.num_rows, shape.row_bytes)
        columns = slice(first * item_bytes, (first + values.shape[1]) * item_bytes)
        for start, stop in row_ranges(shape.num_rows, _PART_ROWS):
            kept = values[start:stop] if self.rows is None else values[self.rows[start:stop]]
            rows[start:stop, columns] = encode_rows(kept, shape.dtype)
        mapped.flush()
