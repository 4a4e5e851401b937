"""Numbers the nodes of each type and the edges between them, in stages that resume after a crash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from diskhop.dataset.edges import EdgeSource
from diskhop.errors import SourceError
from diskhop.importing.numbering.ids import ListedIds, are_ranks, count_listed
from diskhop.importing.numbering.tasks import ListIds
from diskhop.importing.options import IdKind
from diskhop.importing.source import OriginalNames
from diskhop.importing.tables.files import source_faults
from diskhop.importing.tables.numbering import NUMBERING, Groups, number_edges
from diskhop.importing.tables.read_rows import open_all, read_rows, run_stage, work_key
from diskhop.importing.tables.rows import TableRows
from diskhop.importing.tables.tasks import ListNodes, NodeIds, are_in_order
from diskhop.importing.tables.typed.opened import EdgeTable, NodeTable
from diskhop.importing.tables.values import id_value
from diskhop.importing.tools import ImportTools
from diskhop.runtime.duck import Duck


@dataclass(frozen=True, slots=True)
class NumberedNodes:
    """Nodes of one type, 0 to ids.count - 1.

    ids: how ids of the source become numbers.
    key: text that changes when the ids do.
    original: ids that the nodes had in the source, if others.
    names: file of ListIds or ListNodes with the names that they had, if any.
    rows: rows of their table, if there is one.
    """

    ids: NodeIds
    key: str
    original: OriginalNames | None = None
    names: Path | None = None
    rows: TableRows | None = None


@dataclass(frozen=True, slots=True)
class NumberedEdges:
    """Edges of one type between numbered nodes, and the rows of their table."""

    edges: EdgeSource
    rows: TableRows


class TypedWork:
    """Stages of one import of tables per type. nodes, edges: by type, available after run()."""

    def __init__(
        self,
        nodes: Mapping[str, NodeTable],
        edges: Mapping[str, EdgeTable],
        ids: Mapping[str, IdKind],
        work: ImportTools,
    ) -> None:
        self.nodes: dict[str, NumberedNodes] = {}
        self.edges: dict[str, NumberedEdges] = {}
        self._node_tables = nodes
        self._edge_tables = edges
        self._ids = ids
        self._work = work
        self._groups = Groups.that_fit(work)

    def run(self) -> None:
        """Run the unfinished stages. Raises SourceError, with file and row, for a row that breaks a rule."""
        rows = {name: self._read_edges(name, table) for name, table in self._edge_tables.items()}
        for name, nodes in self._node_tables.items():
            self.nodes[name] = self._number_nodes(name, nodes, rows)
        for name, table in self._edge_tables.items():
            self.edges[name] = NumberedEdges(self._number_edges(name, table, rows[name]), rows[name])
        tables = [each.table for each in self._node_tables.values() if each.table is not None]
        for each in (*tables, *(each.table for each in self._edge_tables.values())):
            for file in each.files:
                file.require_unchanged()

    def _read_edges(self, name: str, table: EdgeTable) -> TableRows:
        kinds = {self._ids[table.ends[0]], self._ids[table.ends[2]]}
        kind: IdKind = "string" if "string" in kinds else "integer"
        rows = read_rows(table.table, table.roles.columns, kind, replace(self._work, part=name))
        if rows.num_rows == 0:
            raise SourceError(f"{table.table.shown}: has no edges; add one row per edge")
        return rows

    def _number_nodes(self, name: str, nodes: NodeTable, rows: Mapping[str, TableRows]) -> NumberedNodes:
        kind = self._ids[name]
        work = replace(self._work, part=name)
        what = f"the nodes '{name}'"
        if nodes.count is not None and nodes.table is None:
            return NumberedNodes(NodeIds(nodes.count, what=what), f"{nodes.count} nodes")
        of_table = self._read_nodes(nodes, kind, work)
        with open_all(work) as duck:
            if of_table is not None and nodes.roles is not None:
                value = id_value(nodes.roles.id, kind, "id")
                task = ListNodes("ids.parquet", of_table, value, duck)
                key = f"{work_key(of_table.table, kind)}\n{value}"
                (listed,) = run_stage(work, "ids", key, [task], "listing ids")
                count, is_plain = of_table.num_rows, are_in_order(listed, duck)
            else:
                listed, key = self._list_ends(name, rows, work, duck)
                count = count_listed(listed, duck)
                is_plain = kind == "integer" and are_ranks(listed, count, duck)
        if is_plain:
            return NumberedNodes(NodeIds(count, what=what), key, rows=of_table)
        ids = NodeIds(count, listed, what)
        if kind == "string":
            return NumberedNodes(ids, key, names=listed, rows=of_table)
        return NumberedNodes(ids, key, ListedIds(listed, count, work, ascend=of_table is None), rows=of_table)

    def _read_nodes(self, nodes: NodeTable, kind: IdKind, work: ImportTools) -> TableRows | None:
        if nodes.table is None or nodes.roles is None:
            return None
        rows = read_rows(nodes.table, nodes.columns, kind, work)
        if rows.num_rows == 0:
            raise SourceError(f"{nodes.table.shown}: has no nodes; add one row per node, or remove the table")
        return rows

    def _list_ends(self, name: str, rows: Mapping[str, TableRows], work: ImportTools, duck: Duck) -> tuple[Path, str]:
        """List the ids of a type without a table, those that occur at ends of edges, ascending; with their key."""
        selects, keys = [], []
        shown: dict[Path, Path] = {}
        for edge_type, table in self._edge_tables.items():
            for end, value in ((0, self._value(table, 0)), (2, self._value(table, 2))):
                if table.ends[end] == name:
                    selects.append(f"SELECT {value} AS id FROM {rows[edge_type].sql}")
                    keys += [work_key(table.table, self._ids[name]), value]
                    shown |= dict(zip(rows[edge_type].paths, (each.path for each in table.table.files), strict=True))
        task = ListIds("ids.parquet", f"({' UNION ALL '.join(selects)})", duck, ("id",))
        with source_faults(shown):
            (listed,) = run_stage(work, "ids", "\n".join(keys), [task], "listing ids")
        return listed, "\n".join(keys)

    def _number_edges(self, name: str, table: EdgeTable, rows: TableRows) -> EdgeSource:
        work = replace(self._work, part=name)
        values = (self._value(table, 0), self._value(table, 2))
        nodes = [self.nodes[table.ends[end]] for end in (0, 2)]
        key = "\n".join([work_key(table.table, "string"), *(each.key for each in nodes), *values])
        ids = (nodes[0].ids, nodes[1].ids)
        with open_all(work, self._groups.num_bytes) as duck, work.budget.reserve(NUMBERING, self._groups.num_bytes):
            return number_edges(rows, values, ids, key, self._groups, duck, work)

    def _value(self, table: EdgeTable, end: int) -> str:
        """Return SQL of the id at an end, 0 or 2."""
        column, what = (table.roles.source, "source") if end == 0 else (table.roles.destination, "destination")
        return id_value(column, self._ids[table.ends[end]], what)
