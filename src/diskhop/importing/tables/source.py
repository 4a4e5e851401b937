"""Graphs in tables: edges, and perhaps nodes, as Parquet or CSV.

A source is a folder with `edges.parquet`, `edges.csv`, `edges.csv.gz`, or such parts in a folder `edges`, and nodes
likewise; or one Parquet file of edges. With a table of nodes, node i is its row i; without one, nodes are the ids that
occur, in ascending order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from diskhop.dataset.manifest import EDGE, NODE
from diskhop.errors import ConfigError, SourceError
from diskhop.importing.arrays.loads import load_of_edge_values
from diskhop.importing.estimate import EDGES_PER_NODE, Load
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.evidence.folder import FolderFiles
from diskhop.importing.numbering.ids import listed_names
from diskhop.importing.options import OF_EDGES, OF_FEATURES, OF_TABLES, ImportOptions, as_option
from diskhop.importing.source import Source, SourceEdges, SourceGraph, SourceKind, SourceNodes
from diskhop.importing.source_file import SourceFile
from diskhop.importing.tables.attributes import open_attributes
from diskhop.importing.tables.files import PARQUET, Table, find_files, open_table
from diskhop.importing.tables.node_columns import OpenNodes, open_node_columns
from diskhop.importing.tables.numbering import EDGE_BYTES, NUMBERING
from diskhop.importing.tables.read_rows import count_rows, load_of_table
from diskhop.importing.tables.roles import EdgeRoles, NodeRoles, find_id_kind
from diskhop.importing.tables.rows import LEAST_DUCK_BYTES, READING, TableRows, TableValues
from diskhop.importing.tables.typed.evidence import is_typed_tables
from diskhop.importing.tables.typed.source import TypedTables
from diskhop.importing.tables.values import (
    time_value,
    weight_value,
)
from diskhop.importing.tables.work import TableWork
from diskhop.importing.text.dialects import Dialect, find_dialect
from diskhop.importing.text.suffixes import text_suffix
from diskhop.importing.tools import ImportLimits, ImportTools
from diskhop.runtime.duck import Duck, require_text_path

NAMES = "nodes"
_LOOKING_BYTES = 128 << 20
_PAIR_BYTES = 8
# Bytes per id that is listed, with its number or name.
_LISTED_BYTES = 16
_OF_NODES = ("id", "features", "label", "label_kind", "split", "node_attributes")


def is_tables(source: Path) -> bool:
    """Check whether a source looks like tables. Text of edges alone is an edge list."""
    if not source.is_dir():
        return text_suffix(source) == PARQUET
    found = find_files(source)
    is_folder = any((source / "edges") in path.parents for path in found.edges)
    return bool(found.edges) and (bool(found.nodes) or is_folder or text_suffix(found.edges[0]) == PARQUET)


class Tables:
    """Source in tables. Raises SourceError for files that cannot be read, and columns that are missing."""

    def __init__(self, source: Path, options: ImportOptions) -> None:
        self._source = source
        found = find_files(source) if source.is_dir() else FolderFiles((source,), (), ())
        if not found.edges:
            raise SourceError(
                f"{source}: has no edges.parquet, edges.csv, edges.csv.gz, or folder edges with parts; add one"
            )
        self._passed_over = [name for name, _ in found.others]
        self._dialect = _find_dialect(found, options)
        self._is_mirrored = self._dialect is not None and self._dialect.mirrors(options)
        self._takes_all = options.skip_lines is None and options.comments is None
        self._label_kind = options.label_kind
        given = options
        if self._dialect is not None:
            options = self._dialect.applied_to_table(given)
        self._nodes: Table | None = None
        self._node_roles: NodeRoles | None = None
        with Duck(_LOOKING_BYTES, 1, Path(tempfile.gettempdir())) as duck:
            self._edges = _open(source, "edges", found.edges, options, duck)
            if found.nodes:
                self._nodes = _open(source, "nodes", found.nodes, options, duck)
        self._edge_roles = EdgeRoles.find(self._edges, options)
        keys = [(self._edges, self._edge_roles.source), (self._edges, self._edge_roles.destination)]
        if self._nodes is not None:
            self._node_roles = NodeRoles.find(self._nodes, options)
            keys.append((self._nodes, self._node_roles.id))
        elif unfit := [as_option(name) for name in options.given() if name in _OF_NODES]:
            raise ConfigError(
                f"{source}: {unfit[0]} has no effect without a table of nodes; remove it, or add nodes.csv"
            )
        self._ids = find_id_kind(keys, options.ids)
        self.decisions = self._decide(found, options)
        if self._dialect is not None:
            self.decisions = [*self._dialect.decisions(given), *self._dialect.restated(self.decisions, given)]

    def _decide(self, found: FolderFiles, options: ImportOptions) -> list[Decision]:
        decisions = found.decisions(self._source) if self._source.is_dir() else []
        decisions += [*self._edges.decisions, *self._edge_roles.decisions(self._edges)]
        if self._nodes is not None and self._node_roles is not None:
            decisions += [*self._nodes.decisions, *self._node_roles.decisions(self._nodes, options)]
        why = "--ids" if options.ids else "as the columns are"
        return [*decisions, Decision("ids", "whole numbers" if self._ids == "integer" else "names", why)]

    @property
    def name(self) -> str:
        """See Source."""
        resolved = self._source.resolve()
        return resolved.name if resolved.is_dir() else resolved.stem

    def least_memory(self, limits: ImportLimits) -> Mapping[str, int]:
        """See Source."""
        return {READING: LEAST_DUCK_BYTES, NUMBERING: EDGE_BYTES * limits.edges_per_group}

    @property
    def load(self) -> Load:
        """See Source. CSV as Parquet, ids and pairs stay in the work folder."""
        of_edges = self._edge_roles
        num_edges = count_rows(self._edges)
        if self._is_mirrored:
            num_edges *= 2
        load = load_of_table(self._edges) + load_of_edge_values(num_edges, of_edges.weight, of_edges.time)
        load += Load(value_bytes=8 * num_edges * len(of_edges.attributes))
        if self._nodes is None or self._node_roles is None:
            num_nodes = num_edges // EDGES_PER_NODE
        else:
            num_nodes = count_rows(self._nodes)
            num_values = _count_values(self._nodes, self._node_roles, num_nodes)
            load += load_of_table(self._nodes) + Load(
                table_values=num_values,
                feature_values=num_values,
                feature_bytes=4 * num_values,
                label_bytes=8 * num_nodes * (len(self._node_roles.labels) + len(self._node_roles.attributes)),
            )
        return load + Load(
            num_nodes=num_nodes,
            num_edges=num_edges,
            table_ids=2 * num_edges + num_nodes,
            kept_bytes=_PAIR_BYTES * num_edges + _LISTED_BYTES * num_nodes,
            name_bytes=_LISTED_BYTES * num_nodes * (self._ids == "string"),
        )

    def read(self, work: ImportTools) -> SourceGraph:
        """See Source."""
        require_text_path(work.folder.path)
        tables = TableWork(self._edges, self._edge_roles, self._nodes, self._node_roles, self._ids, work)
        numbered = tables.run()
        if self._dialect is not None and self._takes_all:
            self._dialect.require_rows(self._edges.shown, numbered.edges.num_edges)
        roles, rows = self._edge_roles, tables.edges
        weights = times = None
        if roles.weight is not None:
            weights = TableValues(rows, weight_value(roles.weight), "float32", work, column=roles.weight)
        if roles.time is not None:
            times = TableValues(rows, time_value(roles.time), "int64", work, column=roles.time)
        of_nodes = () if self._node_roles is None else self._node_roles.attributes
        names = {}
        if numbered.names is not None:
            names[NAMES] = listed_names(numbered.names, numbered.num_nodes, work)
        found = OpenNodes()
        if tables.nodes is not None and self._node_roles is not None:
            found = open_node_columns(tables.nodes, self._node_roles, self._label_kind, work)
        labels = found.labels
        names.update({} if labels is None else labels.names)
        return SourceGraph(
            nodes={
                NODE: SourceNodes(
                    count=numbered.num_nodes,
                    features=found.features,
                    labels=None if labels is None else labels.column,
                    num_classes=None if labels is None else labels.num_classes,
                    splits=found.splits,
                    original=numbered.original,
                    attributes={} if tables.nodes is None else open_attributes(tables.nodes, of_nodes, work),
                )
            },
            edges={
                EDGE: SourceEdges(
                    source=NODE,
                    destination=NODE,
                    edges=numbered.edges,
                    origin=str(self._edges.shown),
                    weights=weights,
                    times=times,
                    attributes=open_attributes(rows, roles.attributes, work),
                )
            },
            names=names,
            facts=self._facts(rows),
            is_mirrored=self._is_mirrored,
        )

    def _facts(self, rows: TableRows) -> dict[str, Any]:
        tables = [(self._edges, self._edge_roles.names())]
        if self._nodes is not None and self._node_roles is not None:
            tables.append((self._nodes, self._node_roles.names()))
        taken = {table.what: [*_flat(names.values())] for table, names in tables}
        return {
            "files": sum(len(table.files) for table, _ in tables),
            "rows": rows.num_rows,
            "balance": rows.lines.balance(rows.num_rows, str(self._edges.shown)),
            "passed_over": self._passed_over,
            "ids": self._ids,
            "columns": {table.what: names for table, names in tables},
            "not_taken": {
                table.what: [name for name in table.columns if name not in taken[table.what]] for table, _ in tables
            },
        }


def _count_values(table: Table, roles: NodeRoles, num_rows: int) -> int:
    """Estimate the number of feature values; the lengths of lists are unknown before they are read."""
    if any(column.kind == "numbers" for column in roles.features):
        return sum(file.num_bytes for file in table.files) // 4
    return num_rows * len(roles.features)


def _open(source: Path, what: str, paths: Sequence[Path], options: ImportOptions, duck: Duck) -> Table:
    shown = paths[0] if len(paths) == 1 else source / what if (source / what).is_dir() else source
    return open_table(shown, what, tuple(map(SourceFile.of, paths)), options, duck)


def _flat(values: Any) -> list[str]:
    return [name for value in values for name in (value if isinstance(value, list) else [value])]


def _find_dialect(found: FolderFiles, options: ImportOptions) -> Dialect | None:
    """Find the published format of a text of edges; None: it is a plain table."""
    if found.nodes or text_suffix(found.edges[0]) == PARQUET:
        return None
    return find_dialect(found.edges, replace(options, columns=options.edge_columns))


def open_tables(source: Path, options: ImportOptions) -> Source:
    """Open tables of one type, or per type."""
    return TypedTables(source, options) if is_typed_tables(source) else Tables(source, options)


TABLES = SourceKind(
    name="tables",
    looks_like="a folder with edges and nodes (.parquet .csv .csv.gz, or folders of such), a .parquet file of edges, "
    "or a folder with schema.toml or tables per type (nodes/paper.parquet, edges/author__writes__paper.parquet)",
    takes=(*OF_EDGES, *OF_FEATURES, *OF_TABLES),
    detect=lambda source: is_typed_tables(source) or is_tables(source),
    open=open_tables,
)
