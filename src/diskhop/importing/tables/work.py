"""Turns tables into edges between numbered nodes, within the budget: CSV to Parquet, list ids, number edges.

Each step is a stage of tasks, so that a killed import resumes where it stopped. Edges stay in the order of the rows,
because weights and times do.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from diskhop.dataset.edges import EdgeSource
from diskhop.errors import SourceError
from diskhop.importing.numbering.ids import ListedIds, are_ranks, collect_ids, count_listed
from diskhop.importing.numbering.pairs import PairFiles, RankedEdges
from diskhop.importing.numbering.tasks import ListIds
from diskhop.importing.options import IdKind
from diskhop.importing.source import OriginalNames
from diskhop.importing.tables.files import Table
from diskhop.importing.tables.numbering import NUMBERING, Groups, number_edges
from diskhop.importing.tables.read_rows import open_all, read_rows, run_stage, work_key
from diskhop.importing.tables.roles import EdgeRoles, NodeRoles
from diskhop.importing.tables.rows import TableRows
from diskhop.importing.tables.tasks import ListNodes, NodeIds, are_in_order
from diskhop.importing.tables.values import id_value
from diskhop.importing.tools import ImportTools
from diskhop.runtime.duck import Duck


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
        self._groups = Groups.that_fit(work)

    def run(self) -> NumberedTables:
        """Run the unfinished stages. Raises SourceError, with file and row, for a row that breaks a rule."""
        roles = self._edge_roles
        self.edges = read_rows(self._edge_table, roles.columns, self._ids, self._work)
        if self.edges.num_rows == 0:
            raise SourceError(f"{self._edge_table.shown}: has no edges; add one row per edge")
        if self._node_table is not None and self._node_roles is not None:
            of_nodes = self._node_roles
            self.nodes = read_rows(self._node_table, of_nodes.columns, self._ids, self._work)
            if self.nodes.num_rows == 0:
                raise SourceError(f"{self._node_table.shown}: has no nodes; add one row per node, or remove the table")
            numbered = self._number_by_table(self.nodes, id_value(of_nodes.id, self._ids, "id"))
        else:
            numbered = self._number_by_edges()
        for table in (self._edge_table, self._node_table):
            for file in table.files if table is not None else ():
                file.require_unchanged()
        return numbered

    def _number_by_table(self, nodes: TableRows, value: str) -> NumberedTables:
        num_nodes = nodes.num_rows
        with self._open_duck() as duck, self._work.budget.reserve(NUMBERING, self._groups.num_bytes):
            list_nodes = ListNodes("ids.parquet", nodes, value, duck)
            (listed,) = run_stage(self._work, "ids", f"{self._key(nodes.table)}\n{value}", [list_nodes], "listing ids")
            is_plain = are_in_order(listed, duck)
            edges = self._number(None if is_plain else listed, num_nodes, duck)
        return self._with_names(edges, num_nodes, None if is_plain else listed)

    def _number_by_edges(self) -> NumberedTables:
        with self._open_duck() as duck, self._work.budget.reserve(NUMBERING, self._groups.num_bytes):
            limit = min(2**32 - 1, 8 * self._work.budget.total_bytes // self._work.limits.id_set_share)
            largest = self._largest_id(duck) if self._ids == "integer" else limit
            if largest >= limit:
                rows = f"(SELECT {self._source} AS source, {self._destination} AS destination FROM {self.edges.sql})"
                with self.edges.faults():
                    tasks = [ListIds("ids.parquet", rows, duck)]
                    (listed,) = run_stage(self._work, "ids", self._edge_key, tasks, "listing ids")
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
        nodes = NodeIds(num_nodes, listed)
        values = (self._source, self._destination)
        return number_edges(self.edges, values, (nodes, nodes), self._edge_key, self._groups, duck, self._work)

    def _with_names(self, edges: EdgeSource, num_nodes: int, listed: Path | None) -> NumberedTables:
        if listed is not None and self._ids == "integer":
            return NumberedTables(
                edges, num_nodes, original=ListedIds(listed, num_nodes, self._work, ascend=self._node_table is None)
            )
        return NumberedTables(edges, num_nodes, names=listed)

    def _open_duck(self) -> AbstractContextManager[Duck]:
        return open_all(self._work, self._groups.num_bytes)

    @property
    def _edge_key(self) -> str:
        tables = [table for table in (self._edge_table, self._node_table) if table is not None]
        values = f"{self._source}\n{self._destination}\n{self._node_roles and self._node_roles.id}"
        return "\n".join([*map(self._key, tables), values])

    def _key(self, table: Table) -> str:
        return work_key(table, self._ids)
