"""Turns tables into edges between numbered nodes, within the budget: CSV to Parquet, list ids, number edges.

Each step is a stage of tasks, so that a killed import resumes where it stopped. Edges stay in the order of the rows,
because weights and times do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from diskhop.dataset.edges import EdgeSource
from diskhop.dataset.manifest import index_dtype
from diskhop.errors import SourceError
from diskhop.importing.balance import LineCounts, sum_counts
from diskhop.importing.estimate import Load
from diskhop.importing.numbering.ids import ListedIds, are_ranks, collect_ids, count_listed
from diskhop.importing.numbering.pairs import PairFile, PairFiles, RankedEdges
from diskhop.importing.numbering.tasks import ListIds
from diskhop.importing.options import IdKind
from diskhop.importing.source import OriginalNames
from diskhop.importing.tables.files import Table, TableColumn
from diskhop.importing.tables.roles import EdgeRoles, NodeRoles
from diskhop.importing.tables.rows import TableRows, open_duck
from diskhop.importing.tables.tasks import KeepText, ListNodes, NumberEdges, are_in_order
from diskhop.importing.tables.values import id_value
from diskhop.importing.text.packing import packing_of
from diskhop.importing.text.rows import read_counts
from diskhop.importing.text.streams import row_bytes, texts_bytes
from diskhop.importing.text.tasks import ByteCounter, Unpack
from diskhop.importing.tools import ImportTools
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.duck import Duck
from diskhop.runtime.tasks import Task, run_tasks

# Finished work of another format is discarded.
_WORK_FORMAT = 2
# Memory per edge that is numbered, in addition to DuckDB's: ids as fetched, and numbers.
EDGE_BYTES = 64
NUMBERING = "numbering edges"
# Groups of edges take at most this part of the budget.
_GROUP_SHARE = 4


def load_of_table(table: Table) -> Load:
    """Estimate the load of reading a table; CSV is converted to Parquet in the work folder."""
    load = Load(source_bytes=sum(file.num_bytes for file in table.files))
    if table.layout is None:
        return load
    text, unpacked = texts_bytes(table.files)
    return load + Load(inflated_bytes=unpacked, table_text_bytes=text, kept_bytes=unpacked + text)


def count_rows(table: Table) -> int:
    """Estimate the number of rows."""
    if table.layout is None:
        return sum(table.counts)
    text, _ = texts_bytes(table.files)
    return int(text / row_bytes(table.files[0].path, table.texts[0].rows_begin))


@dataclass(frozen=True, slots=True)
class NumberedTables:
    """Edges between nodes 0 to num_nodes - 1.

    original: numbers that the nodes had in the source, if others.
    names: file of ListIds with the names that the nodes had in the source, if any.
    """

    edges: EdgeSource
    num_nodes: int
    original: OriginalNames | None = None
    names: Path | None = None


class TableWork:
    """Stages of one import. edges, nodes: rows of the tables, available after run()."""

    edges: TableRows
    nodes: TableRows | None = None

    def __init__(
        self,
        edges: Table,
        edge_roles: EdgeRoles,
        nodes: Table | None,
        node_roles: NodeRoles | None,
        ids: IdKind,
        work: ImportTools,
    ) -> None:
        self._edge_table = edges
        self._edge_roles = edge_roles
        self._node_table = nodes
        self._node_roles = node_roles
        self._ids = ids
        self._work = work
        self._source = id_value(edge_roles.source, ids, "source")
        self._destination = id_value(edge_roles.destination, ids, "destination")
        # Each group is joined with all ids: larger groups mean fewer joins.
        most = work.budget.available_bytes // _GROUP_SHARE // EDGE_BYTES
        self._edges_at_once = max(work.limits.edges_per_group, min(most, work.limits.most_edges_per_group))
        self._group_bytes = EDGE_BYTES * self._edges_at_once

    def run(self) -> NumberedTables:
        """Run the unfinished stages. Raises SourceError, with file and row, for a row that breaks a rule."""
        roles = self._edge_roles
        self.edges = self._as_parquet(self._edge_table, roles.columns)
        if self.edges.num_rows == 0:
            raise SourceError(f"{self._edge_table.shown}: has no edges; add one row per edge")
        if self._node_table is not None and self._node_roles is not None:
            of_nodes = self._node_roles
            self.nodes = self._as_parquet(
                self._node_table,
                of_nodes.columns,
            )
            if self.nodes.num_rows == 0:
                raise SourceError(f"{self._node_table.shown}: has no nodes; add one row per node, or remove the table")
            numbered = self._number_by_table(self.nodes, id_value(of_nodes.id, self._ids, "id"))
        else:
            numbered = self._number_by_edges()
        for table in (self._edge_table, self._node_table):
            for file in table.files if table is not None else ():
                file.require_unchanged()
        return numbered

    def _as_parquet(self, table: Table, columns: Sequence[TableColumn]) -> TableRows:
        """Return the rows of a table, after converting CSV to Parquet."""
        if table.layout is None:
            lines = LineCounts(lines=sum(table.counts))
            return TableRows(table, tuple(file.path for file in table.files), table.counts, lines)
        layout = replace(table.layout, ids=self._ids)
        texts = self._unpack(table)
        with self._open_duck(0) as duck:
            tasks = [
                KeepText(f"{number:05d}.parquet", text, file, tuple(table.columns), columns, layout, duck)
                for number, (file, text) in enumerate(zip(table.texts, texts, strict=True))
            ]
            key = f"{self._key(table)}\n{columns}\n{layout}\n{[file.head for file in table.texts]}"
            paths = self._run(
                f"{table.what}-rows", key, tasks, f"parsing {table.what}", duck.shares(self._work.tools.processes)
            )
            counts = tuple(count_listed(path, duck) for path in paths)
            lines = read_counts(paths, duck)
        if lines.rows != sum(counts):  # lines of rows with quotes, of which some are within fields
            lines = replace(lines, lines=sum(counts) + lines.comments + lines.empty)
        return TableRows(table, tuple(paths), counts, sum_counts([lines, *(file.head for file in table.texts)]))

    def _unpack(self, table: Table) -> list[Path]:
        packings = [packing_of(file.path) for file in table.files]
        packed = {number: table.files[number] for number, packing in enumerate(packings) if packing is not None}
        texts = [file.path for file in table.files]
        if packed:
            counter = ByteCounter(self._work.progress, "unpacking", sum(file.num_bytes for file in packed.values()))
            tasks = [Unpack(f"{number:05d}.csv", file, str(packings[number])) for number, file in packed.items()]
            outputs = self._run(f"{table.what}-text", self._key(table), tasks, "", self._work.threads, counter.add)
            for number, text in zip(packed, outputs, strict=True):
                texts[number] = text
        return texts

    def _number_by_table(self, nodes: TableRows, value: str) -> NumberedTables:
        num_nodes = nodes.num_rows
        with self._open_duck(self._group_bytes) as duck, self._work.budget.reserve(NUMBERING, self._group_bytes):
            list_nodes = ListNodes("ids.parquet", nodes, value, duck)
            (listed,) = self._run("ids", f"{self._key(nodes.table)}\n{value}", [list_nodes], "listing ids")
            is_plain = are_in_order(listed, duck)
            edges = self._number(None if is_plain else listed, num_nodes, duck)
        return self._with_names(edges, num_nodes, None if is_plain else listed)

    def _number_by_edges(self) -> NumberedTables:
        with self._open_duck(self._group_bytes) as duck, self._work.budget.reserve(NUMBERING, self._group_bytes):
            limit = min(2**32 - 1, 8 * self._work.budget.total_bytes // self._work.limits.id_set_share)
            largest = self._largest_id(duck) if self._ids == "integer" else limit
            if largest >= limit:
                rows = f"(SELECT {self._source} AS source, {self._destination} AS destination FROM {self.edges.sql})"
                with self.edges.faults():
                    (listed,) = self._run("ids", self._edge_key, [ListIds("ids.parquet", rows, duck)], "listing ids")
                num_nodes = count_listed(listed, duck)
                edges = self._number(listed, num_nodes, duck)
                need_list = self._ids == "string" or not are_ranks(listed, num_nodes, duck)
                return self._with_names(edges, num_nodes, listed if need_list else None)
            edges = self._number(None, largest + 1, duck)
        ids = collect_ids(edges, largest + 1, self._work)
        if ids.count == largest + 1:
            return NumberedTables(edges, ids.count)
        return NumberedTables(RankedEdges(edges, ids), ids.count, original=ids)

    def _largest_id(self, duck: Duck) -> int:
        with self.edges.faults():
            (largest,) = duck.fetch(f"SELECT max(greatest({self._source}, {self._destination})) FROM {self.edges.sql}")
        return int(largest[0])

    def _number(self, listed: Path | None, num_nodes: int, duck: Duck) -> PairFiles:
        """Number the edges by listed ids; None: ids are below num_nodes and stay as they are."""
        # One task per process: DuckDB gives it all threads of the process.
        most_groups = self._edges_at_once // self._work.limits.edges_per_group
        groups_at_once = min(duck.shares(self._work.tools.processes), most_groups)
        in_group = self._edges_at_once // groups_at_once
        tasks = [
            NumberEdges(
                f"{first:012d}-{in_group}",
                self.edges,
                first,
                end - first,
                self._source,
                self._destination,
                listed,
                num_nodes,
                index_dtype(num_nodes),
                duck,
            )
            for first, end in row_ranges(self.edges.num_rows, in_group)
        ]
        # Groups are not part of the key: edges are in the order of the rows whatever the groups.
        key = f"{self._edge_key}\nnodes {num_nodes}, listed {listed is not None}"
        paths = self._run("numbered", key, tasks, "numbering edges", groups_at_once)
        return PairFiles([PairFile.open(path) for path in paths], key)

    def _with_names(self, edges: EdgeSource, num_nodes: int, listed: Path | None) -> NumberedTables:
        if listed is not None and self._ids == "integer":
            return NumberedTables(
                edges, num_nodes, original=ListedIds(listed, num_nodes, self._work, ascend=self._node_table is None)
            )
        return NumberedTables(edges, num_nodes, names=listed)

    def _open_duck(self, other_bytes: int) -> AbstractContextManager[Duck]:
        return open_duck(self._work, self._work.budget.available_bytes - other_bytes, self._work.threads)

    @property
    def _edge_key(self) -> str:
        tables = [table for table in (self._edge_table, self._node_table) if table is not None]
        values = f"{self._source}\n{self._destination}\n{self._node_roles and self._node_roles.id}"
        return "\n".join([*map(self._key, tables), values])

    def _key(self, table: Table) -> str:
        return "\n".join([f"format {_WORK_FORMAT}, tables, ids {self._ids}", *(file.identity for file in table.files)])

    def _run(
        self,
        stage: str,
        key: str,
        tasks: Sequence[Task],
        shown: str,
        threads: int = 1,
        count: Callable[[int], None] | None = None,
    ) -> list[Path]:
        """Run the unfinished tasks and return all outputs in order. shown: name of the stage for users."""
        folder = self._work.folder.stage(stage, key)

        def report(done: int, total: int) -> None:
            if shown:
                self._work.progress(shown, done, total)

        run_tasks(tasks, folder, self._work.tools, threads=threads, progress=report, count=count)
        return [folder / task.name for task in tasks]
