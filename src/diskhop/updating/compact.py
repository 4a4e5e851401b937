"""Compacting: an updated dataset becomes what an import of its whole source would have made, without old generations.

Files that are so already become hard links. A dataset in hot order is sorted again, since new edges change how often a
node is read, and new nodes came last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine, invert_order
from diskhop.budget import Budget
from diskhop.dataset.attribute_info import AttributeInfo, attribute_file
from diskhop.dataset.build.builder import DATASET, DatasetBuilder
from diskhop.dataset.build.extended import ExtendedDataset
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.dataset.files import map_array, read_blocks
from diskhop.dataset.manifest import CLASSES, VALUES, NodeType
from diskhop.dataset.sort.hot_order import RenumberedEdges, find_hot_order
from diskhop.dataset.sort.moved_rows import RowMover
from diskhop.dataset.sort.tidy import Tidying
from diskhop.dataset.verify import verify
from diskhop.errors import BusyError, FormatError
from diskhop.importing.edge_attributes import EdgeAttributeWriter
from diskhop.importing.source import SourceAttribute, SourceEdges
from diskhop.importing.tools import ImportLimits, ImportTools
from diskhop.io.atomic import Injector
from diskhop.io.destinations import StagedDirectory
from diskhop.protocols import NodeRows
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools, WorkFolder
from diskhop.system.memory import default_memory_bytes, default_threads
from diskhop.updating.generation import remove_leftovers
from diskhop.updating.options import require_plain
from diskhop.updating.splice import stored_rows

_ROWS_PER_BLOCK = 1 << 16


def compact_dataset(
    path: Path,
    *,
    engine: Engine,
    budget: Budget | None = None,
    threads: int | None = None,
    limits: ImportLimits | None = None,
    injector: Injector | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Compact a dataset and open it. Derived files, which are of old generations, are removed with these.

    What a killed compaction left next to a dataset that it had already replaced is removed, too.

    Raises ConfigError for a dataset that cannot be updated, FormatError for damage, BudgetError, DestinationError. The
    dataset is then as it was.
    """
    progress = progress or silent
    dataset = open_dataset(path)
    require_plain(dataset)
    if dataset.manifest.generation == 1:
        with suppress(BusyError):  # another compaction is just removing it
            StagedDirectory(path, DATASET, overwrite=True, injector=injector).remove_leftover()
        return dataset
    budget, threads = budget or Budget(default_memory_bytes()), threads or default_threads()
    with WorkFolder(path, injector) as lock:
        lock.lock()
        # Only now: another update may just have ended.
        dataset = open_dataset(path)
        require_plain(dataset)
        remove_leftovers(dataset, injector)
    options: dict[str, Any] = {"name": dataset.name, "engine": engine, "budget": budget, "threads": threads}
    options |= {"origin": str(path), "injector": injector, "progress": progress, "overwrite": True}
    if dataset.order != "hot":
        extended = ExtendedDataset(path, **options)
        with extended:
            _lock_same(extended, dataset)
            extended.add_dataset(dataset)
            return extended.finish()
    damages = verify(path, progress)
    if damages:
        raise FormatError(f"{path}: {damages[0]}; import the graph again, or copy the dataset again")
    limits = limits or ImportLimits()
    with DatasetBuilder(path, sort_limits=limits.sort, **options) as builder, ExitStack() as held:
        _lock_same(builder, dataset)
        builder.require_space(sum(entry.num_bytes for entry in dataset.manifest.files.values()))
        tools = TaskTools(engine, injector)
        work = ImportTools(builder.work, tools, budget, threads, progress, held, limits=limits)
        _HotCopy(dataset, builder, work).write()
        return builder.finish()


def _lock_same(builder: DatasetBuilder, dataset: Dataset) -> None:
    """Keep updates out until the builder ends. Raises BusyError if the dataset was updated since it was opened."""
    builder.work.lock()
    if open_dataset(dataset.path).hash != dataset.hash:
        raise BusyError(f"{dataset.path}: was changed in the meantime; run the same command again")


class _HotCopy:
    """Writes a dataset in hot order, sorted again from the positions of its nodes in the source."""

    def __init__(self, dataset: Dataset, builder: DatasetBuilder, work: ImportTools) -> None:
        self._dataset, self._builder, self._work = dataset, builder, work
        self._nodes = dataset.only_nodes
        self._info: NodeType = dataset.manifest.node_types[self._nodes.name]
        self._type = self._nodes.name
        positions = self._nodes.id_map().positions()
        assert positions is not None, "a dataset in hot order has original ids"
        self._positions = positions

    def write(self) -> None:
        """Write everything."""
        work, nodes = self._work, self._nodes
        work.held.enter_context(work.budget.reserve("original ids", 32 * nodes.num_nodes))
        self._builder.add_nodes(self._type, nodes.num_nodes, states_count=nodes.states_count)
        edges = _PlacedEdges(self._dataset, self._positions)
        order = work.held.enter_context(
            find_hot_order(
                edges,
                nodes.num_nodes,
                budget=work.budget,
                threads=work.threads,
                origin=str(self._dataset.path),
                progress=work.progress,
            )
        )
        self._write_edges(RenumberedEdges(edges, order.new_ids, str(self._dataset.path)))
        new_rows = order.new_ids[self._positions]
        old_rows = invert_order(new_rows)
        self._mover = RowMover(
            new_rows,
            old_rows,
            work=work.folder,
            budget=work.budget,
            tools=work.tools,
            progress=work.progress,
        )
        self._write_columns()
        self._write_splits(new_rows)
        ids = nodes.original_ids()
        assert ids is not None
        self._builder.add_original_ids(self._type, [ids[old_rows]], order="hot")
        if self._info.positions:
            self._builder.add_positions(self._type, [self._positions[old_rows]])
        for what, count in self._dataset.manifest.names.items():
            self._builder.add_names(what, read_blocks(self._dataset.content / f"names/{what}.txt"), count)

    def _write_edges(self, edges: RenumberedEdges) -> None:
        dataset = self._dataset
        of, info = dataset.only_edges, dataset.manifest.edge_types[dataset.only_edges.name]
        attributes = {}
        for name, attribute in info.attributes.items():
            values = None
            if not attribute.stored_as:
                relative = attribute_file(f"edges/{of.name}", name)
                values = _StoredValues(dataset.content / relative, attribute, info.count)
            attributes[name] = SourceAttribute(info=attribute, values=values)
        given = SourceEdges(
            source=of.source, destination=of.destination, edges=edges, origin=str(dataset.path), attributes=attributes
        )
        writer = EdgeAttributeWriter(of.name, given, self._builder, self._work)
        self._builder.add_edge_list(
            of.name,
            of.source,
            of.destination,
            edges,
            edge_id_dtype=info.edge_id_dtype,
            edge_ids=of.edge_ids(),
            weights=of.edge_weights(),
            times=of.edge_times(),
            tidied=Tidying(
                both_ways=info.both_ways, drop_loops=info.without_loops, drop_duplicates=info.without_repeats
            ),
            numbers=writer.numbers,
            adj_t=info.adj_t,
        )
        writer.write()

    def _write_columns(self) -> None:
        info, folder = self._info, f"nodes/{self._type}"
        if info.features is not None:
            table = info.features
            rows = self._moved(f"{folder}/features.bin", table.row_stride, table.row_bytes)
            self._builder.add_encoded_features(self._type, rows, dim=table.dim, dtype=table.dtype)
        if info.labels is not None:
            labels = info.labels
            rows = self._moved(f"{folder}/labels.bin", labels.row_bytes, labels.row_bytes)
            if labels.kind == CLASSES:
                classes = (_as(block, "<i8").reshape(-1) for block in rows)
                self._builder.add_labels(self._type, classes, labels.num_classes)
            else:
                add = self._builder.add_values if labels.kind == VALUES else self._builder.add_tasks
                add(self._type, (_as(block, "<f4").reshape(-1, labels.num_tasks) for block in rows), labels.num_tasks)
        for name, attribute in info.attributes.items():
            blocks: Iterator[NDArray[Any]] = iter(())
            if not attribute.stored_as and attribute.row_bytes:
                rows = self._moved(attribute_file(folder, name), attribute.row_bytes, attribute.row_bytes)
                blocks = (_as(block, attribute.stored_dtype) for block in rows)
            self._builder.add_attribute("nodes", self._type, name, attribute, blocks)

    def _moved(self, relative: str, row_stride: int, row_bytes: int) -> Iterator[NDArray[np.uint8]]:
        path, entry = self._dataset.content / relative, self._dataset.manifest.files[relative]
        return self._mover.move(
            lambda: (block[:, :row_bytes] for block in stored_rows(path, entry, row_stride)),
            row_bytes,
            stage=relative.replace("/", "-"),
            key=f"{self._dataset.hash} {relative}",
        )

    def _write_splits(self, new_rows: NDArray[Any]) -> None:
        num_splits = self._nodes.num_splits
        for part in ("train", "valid", "test"):
            for number in range(num_splits):
                rows = self._nodes.split_rows(part, number)
                if rows is not None:
                    self._builder.add_split(self._type, part, [rows], number, num_splits, new_ids=new_rows)


class _PlacedEdges:
    """The edges of a dataset in the order of its lists, between positions of nodes in the source."""

    def __init__(self, dataset: Dataset, positions: NDArray[np.int64]) -> None:
        files = dataset.only_edges.topology
        self._starts = map_array(files.indptr_path, np.int64, files.num_nodes + 1)
        self._sources = map_array(files.indices_path, files.index_dtype, files.num_edges)
        self._positions = positions
        self.num_edges = files.num_edges
        self.identity = f"edges of {dataset.hash}"

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """See EdgeSource."""
        end = first + count
        begin_row = int(np.searchsorted(self._starts, first, side="right")) - 1
        end_row = int(np.searchsorted(self._starts, end))
        starts = np.clip(self._starts[begin_row : end_row + 1], first, end)
        rows = np.repeat(np.arange(begin_row, begin_row + len(starts) - 1), np.diff(starts))
        return self._positions[self._sources[first:end]], self._positions[NodeRows(rows)]


class _StoredValues:
    """An attribute of edges as a column. resident: its values, mapped."""

    def __init__(self, path: Path, info: AttributeInfo, count: int) -> None:
        self.where = self.identity = str(path)
        self.dtype, self.shape = info.stored_dtype, (count, *info.shape)
        self.resident = map_array(path, info.stored_dtype, count * info.num_values).reshape(self.shape)

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column."""
        for first in range(0, len(self.resident), _ROWS_PER_BLOCK):
            yield self.resident[first : first + _ROWS_PER_BLOCK]


def _as(block: NDArray[np.uint8], dtype: str | np.dtype[Any]) -> NDArray[Any]:
    values: NDArray[Any] = np.ascontiguousarray(block).reshape(-1).view(dtype)
    return values
