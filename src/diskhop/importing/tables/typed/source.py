"""Graphs of several types in tables: one per type of nodes and of edges."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.edges import EdgeSource
from diskhop.dataset.manifest import EDGE, NODE
from diskhop.dataset.name_lines import to_lines
from diskhop.errors import ConfigError
from diskhop.importing.arrays.loads import load_of_edge_values
from diskhop.importing.estimate import EDGES_PER_NODE, Load
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.numbering.ids import listed_names
from diskhop.importing.options import OF_CSV, OF_TABLES, IdKind, ImportOptions, as_option
from diskhop.importing.source import NameList, SourceAttribute, SourceEdges, SourceGraph, SourceNodes
from diskhop.importing.tables.attributes import open_attributes
from diskhop.importing.tables.files import Table, TableColumn
from diskhop.importing.tables.labels import CLASS_NAMES
from diskhop.importing.tables.node_columns import OpenNodes, open_node_columns
from diskhop.importing.tables.numbering import EDGE_BYTES, NUMBERING
from diskhop.importing.tables.read_rows import count_rows, load_of_table
from diskhop.importing.tables.roles import NodeRoles, find_id_kind
from diskhop.importing.tables.rows import LEAST_DUCK_BYTES, READING, TableRows, TableValues, open_duck
from diskhop.importing.tables.typed.evidence import files_of, find_schema
from diskhop.importing.tables.typed.opened import EdgeTable, NodeTable, column_names, open_edges, open_nodes
from diskhop.importing.tables.typed.schema import SCHEMA_NAME, Schema, read_schema
from diskhop.importing.tables.typed.work import NumberedNodes, TypedWork
from diskhop.importing.tables.values import id_value, time_value, weight_value
from diskhop.importing.tools import ImportLimits, ImportTools
from diskhop.runtime.duck import Duck, require_text_path

NAMES = "nodes"
_ONE_EDGE_TYPE = "__".join((NODE, EDGE, NODE))
_LOOKING_BYTES = 128 << 20
_PAIR_BYTES = 8
_LISTED_BYTES = 16
_NAMES_PER_BLOCK = 1 << 9


class TypedTables:
    """Source in tables per type. Raises SourceError for tables that cannot be read, and types that do not exist."""

    def __init__(self, source: Path, options: ImportOptions) -> None:
        unfit = [as_option(name) for name in options.given() if name in OF_TABLES and name not in OF_CSV]
        if unfit:
            raise ConfigError(
                f"{source}: {unfit[0]} has no effect on tables of several types; describe each in "
                f"{source / SCHEMA_NAME}"
            )
        resolved = source.resolve()
        self.name = resolved.name
        with Duck(_LOOKING_BYTES, 1, Path(tempfile.gettempdir())) as duck:
            schema = _find_schema(source, options, duck)
            self._nodes = {name: open_nodes(each, options, duck) for name, each in schema.nodes.items()}
            self._edges = {name: open_edges(each, options, duck) for name, each in schema.edges.items()}
        self._ids = {name: self._id_kind(name, nodes) for name, nodes in self._nodes.items()}
        self.decisions = [decision for each in self._nodes.values() for decision in each.decisions()]
        self.decisions += [decision for each in self._edges.values() for decision in each.decisions()]
        for name, kind in self._ids.items():
            self.decisions.append(
                Decision(f"{name}: ids", "whole numbers" if kind == "integer" else "names", "as the columns are")
            )

    def _id_kind(self, name: str, nodes: NodeTable) -> IdKind:
        """Find the kind of the ids of a type, in its table and at the ends of edges."""
        keys: list[tuple[Table, TableColumn]] = []
        if nodes.table is not None and nodes.roles is not None:
            keys.append((nodes.table, nodes.roles.id))
        for edges in self._edges.values():
            keys += [(edges.table, edges.roles.source)] * (edges.ends[0] == name)
            keys += [(edges.table, edges.roles.destination)] * (edges.ends[2] == name)
        return find_id_kind(keys, None) if keys else "integer"

    def least_memory(self, limits: ImportLimits) -> Mapping[str, int]:
        """See Source."""
        return {READING: LEAST_DUCK_BYTES, NUMBERING: EDGE_BYTES * limits.edges_per_group}

    @property
    def load(self) -> Load:
        """See Source. CSV as Parquet, ids and pairs stay in the work folder."""
        load = Load()
        num_edges = 0
        for edges in self._edges.values():
            count = count_rows(edges.table)
            num_edges += count
            roles = edges.roles
            load += load_of_table(edges.table) + load_of_edge_values(count, roles.weight, roles.time)
            load += Load(num_edges=count, table_ids=2 * count, kept_bytes=_PAIR_BYTES * count)
            load += Load(value_bytes=8 * count * len(roles.attributes))
        for name, nodes in self._nodes.items():
            count = nodes.count or num_edges // EDGES_PER_NODE
            if nodes.table is not None and nodes.roles is not None:
                count = count_rows(nodes.table)
                load += load_of_table(nodes.table) + _load_of_columns(nodes.table, nodes.roles, count)
            named = _LISTED_BYTES * count * (self._ids[name] == "string")
            load += Load(num_nodes=count, table_ids=count, kept_bytes=_LISTED_BYTES * count, name_bytes=named)
        return load

    def read(self, work: ImportTools) -> SourceGraph:
        """See Source."""
        require_text_path(work.folder.path)
        numbered = TypedWork(self._nodes, self._edges, self._ids, work)
        numbered.run()
        names: dict[str, NameList] = {}
        nodes = {}
        for name, each in numbered.nodes.items():
            nodes[name], more = self._read_nodes(name, each, work)
            names |= more
        edges = {
            name: _source_edges(self._edges[name], each.edges, each.rows, work) for name, each in numbered.edges.items()
        }
        if list(nodes) == [NODE] and list(edges) == [_ONE_EDGE_TYPE]:
            # An exported graph of one type.
            edges = {EDGE: edges[_ONE_EDGE_TYPE]}
            names = {what.removesuffix(f".{NODE}"): each for what, each in names.items()}
        return SourceGraph(nodes=nodes, edges=edges, names=names, facts=self._facts())

    def _read_nodes(
        self, name: str, numbered: NumberedNodes, work: ImportTools
    ) -> tuple[SourceNodes, dict[str, NameList]]:
        table = self._nodes[name]
        names = {}
        if numbered.names is not None:
            names[f"{NAMES}.{name}"] = listed_names(numbered.names, numbered.ids.count, work)
        found = OpenNodes()
        attributes: dict[str, SourceAttribute] = {}
        rows = numbered.rows
        if rows is not None and table.roles is not None:
            found = open_node_columns(rows, table.roles, table.given.given.get("label_kind"), work)
            attributes = open_attributes(rows, table.roles.attributes, work)
            if table.time is not None:
                values = TableValues(rows, time_value(table.time), "int64", work, column=table.time)
                attributes["time"] = SourceAttribute(info=AttributeInfo(dtype="int64"), values=values)
            if table.names is not None:
                names[f"{NAMES}.{name}"] = _names_of(rows, table.names, work)
        labels = found.labels
        if labels is not None and CLASS_NAMES in labels.names:
            names[f"{CLASS_NAMES}.{name}"] = labels.names[CLASS_NAMES]
        nodes = SourceNodes(
            count=numbered.ids.count,
            features=found.features,
            feature_dtype=table.given.given.get("dtype"),
            labels=None if labels is None else labels.column,
            num_classes=None if labels is None else labels.num_classes or table.given.given.get("num_classes"),
            splits=found.splits,
            original=numbered.original,
            attributes=attributes,
        )
        return nodes, names

    def _facts(self) -> dict[str, Any]:
        tables = [each.table for each in self._nodes.values() if each.table is not None]
        tables += [each.table for each in self._edges.values()]
        return {"files": sum(len(table.files) for table in tables), "format": "tables per type"}


def _find_schema(source: Path, options: ImportOptions, duck: Duck) -> Schema:
    if (source / SCHEMA_NAME).is_file():
        return read_schema(source, files_of)
    return find_schema(source, lambda files: column_names(files, options, duck))


def _source_edges(table: EdgeTable, edges: EdgeSource, rows: TableRows, work: ImportTools) -> SourceEdges:
    roles = table.roles
    weights = times = None
    if roles.weight is not None:
        weights = TableValues(rows, weight_value(roles.weight), "float32", work, column=roles.weight)
    if roles.time is not None:
        times = TableValues(rows, time_value(roles.time), "int64", work, column=roles.time)
    return SourceEdges(
        source=table.ends[0],
        destination=table.ends[2],
        edges=edges,
        origin=str(table.table.shown),
        weights=weights,
        times=times,
        attributes=open_attributes(rows, roles.attributes, work),
    )


def _load_of_columns(table: Table, roles: NodeRoles, num_rows: int) -> Load:
    num_values = num_rows * len(roles.features)
    if any(column.kind == "numbers" for column in roles.features):
        num_values = sum(file.num_bytes for file in table.files) // 4
    return Load(
        table_values=num_values,
        feature_values=num_values,
        feature_bytes=4 * num_values,
        label_bytes=8 * num_rows * (len(roles.labels) + len(roles.attributes)),
    )


def _names_of(rows: TableRows, column: TableColumn, work: ImportTools) -> NameList:
    return NameList(
        count=rows.num_rows, lines=partial(_name_lines, rows, column, work), reserved_bytes=LEAST_DUCK_BYTES
    )


def _name_lines(rows: TableRows, column: TableColumn, work: ImportTools) -> Iterator[NDArray[np.uint8]]:
    with open_duck(work, work.budget.available_bytes // 2, 1) as duck, rows.faults():
        for block in duck.stream(f"SELECT {id_value(column, 'string', 'name')} FROM {rows.sql}", _NAMES_PER_BLOCK):
            yield to_lines(name for (name,) in block)
