"""Deltas in tables: Parquet or CSV files of added edges, removed edges, and nodes, as `diskhop import` reads them.

A delta is a folder with `edges.*`, `removed-edges.*` and `nodes.*`, each a file or a folder of parts, or one of these
files. Columns are found as in an import. What the dataset has tells what a column must be: the kind of ids and
labels, the width of features, attributes by their names.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.manifest import CLASSES
from diskhop.errors import SourceError
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.evidence.folder import what_of
from diskhop.importing.evidence.names import role_of
from diskhop.importing.options import ImportOptions
from diskhop.importing.source import Column, SourceAttribute
from diskhop.importing.source_file import SourceFile, source_errors
from diskhop.importing.tables.attributes import open_attributes
from diskhop.importing.tables.class_names import ClassNames, find_class_names
from diskhop.importing.tables.files import Table, TableColumn, find_files, has_table_suffix, open_table
from diskhop.importing.tables.labels import CLASS_NAMES, open_labels
from diskhop.importing.tables.node_columns import open_node_columns
from diskhop.importing.tables.numbering import Groups, number_edges
from diskhop.importing.tables.read_rows import count_rows, read_rows, work_key
from diskhop.importing.tables.roles import EdgeRoles, NodeRoles, find_id_kind
from diskhop.importing.tables.rows import TableRows, TableValues, open_duck
from diskhop.importing.tables.tasks import NodeIds
from diskhop.importing.tables.values import id_value, time_value, weight_value
from diskhop.importing.tools import ImportTools
from diskhop.runtime.duck import Duck
from diskhop.updating.delta import TIMES, WEIGHTS, Delta, DeltaEdges, DeltaNodes
from diskhop.updating.ids import KnownIds, kind_of_ids, no_nodes

EDGES, REMOVED, NODES = "edges", "removed-edges", "nodes"
_LOOKING_BYTES = 128 << 20
_REMOVED_WORDS = {"removed", "remove", "deleted", "delete"}
# Of an edge in memory: rows of its ends, as read and as kept.
_ENDS_BYTES = 32
_RESERVED = "delta"


class DeltaTables:
    """A delta in tables. Raises SourceError for files and columns that do not fit the dataset."""

    def __init__(self, source: Path, dataset: Dataset, options: ImportOptions) -> None:
        self._source, self._dataset = source, dataset
        self._nodes, self._edges = dataset.only_nodes, dataset.only_edges
        files = _find_files(source)
        unused = [name for name in ("id", "features", "label", "split") if getattr(options, name) is not None]
        if unused and NODES not in files:
            raise SourceError(f"{source}: has no table of nodes, which --{unused[0]} is for; remove it")
        with Duck(_LOOKING_BYTES, 1, Path(tempfile.gettempdir())) as duck:
            opened = {
                what: open_table(_shown(source, paths), what, tuple(map(SourceFile.of, paths)), options, duck)
                for what, paths in files.items()
            }
        # A table of nothing but a header has columns of no kind.
        self._tables = {what: table for what, table in opened.items() if table.has_rows}
        self._edge_roles: dict[str, EdgeRoles] = {}
        self._node_roles: NodeRoles | None = None
        keys: list[tuple[Table, TableColumn]] = []
        for what, table in self._tables.items():
            if what == NODES:
                self._node_roles = self._find_node_roles(table, options)
                keys.append((table, self._node_roles.id))
            else:
                roles = self._edge_roles[what] = self._find_edge_roles(what, table, options)
                keys += [(table, roles.source), (table, roles.destination)]
        self._ids = find_id_kind(keys, kind_of_ids(dataset))
        for table, column in keys:
            if self._ids == "integer" and column.kind == "text":
                raise SourceError(
                    f"{table.shown}: column '{column.name}' has names, and the nodes of {dataset.path} have numbers; "
                    "give these, as dataset.node_ids() lists them"
                )

    @property
    def decisions(self) -> Sequence[Decision]:
        """See DeltaSource."""
        found: list[Decision] = []
        for what, table in self._tables.items():
            found += [Decision(str(table.shown), what, "by its name"), *table.decisions]
            if what == NODES and self._node_roles is not None:
                found += self._node_roles.decisions(table, ImportOptions())
            elif what != NODES:
                found += self._edge_roles[what].decisions(table)
        return found

    @property
    def num_bytes(self) -> int:
        """See DeltaSource."""
        return sum(file.num_bytes for table in self._tables.values() for file in table.files)

    @property
    def num_added(self) -> int:
        """See DeltaSource."""
        return self._count(EDGES)

    @property
    def num_removed(self) -> int:
        """See DeltaSource."""
        return self._count(REMOVED)

    @property
    def num_nodes(self) -> int:
        """See DeltaSource."""
        return self._count(NODES)

    def read(self, work: ImportTools) -> Delta:
        """See DeltaSource."""
        known = KnownIds(self._dataset, work)
        delta = Delta()
        if self._node_roles is None:
            nodes, ids = no_nodes(known)
        else:
            nodes, ids = self._read_nodes(self._node_roles, known, work)
        delta = replace(delta, nodes=nodes)
        if EDGES in self._tables:
            delta = replace(delta, added=self._read_edges(EDGES, ids, work))
        if REMOVED in self._tables:
            delta = replace(delta, removed=self._read_edges(REMOVED, known.known(), work))
        for table in self._tables.values():
            for file in table.files:
                file.require_unchanged()
        return delta

    def _count(self, what: str) -> int:
        return count_rows(self._tables[what]) if what in self._tables else 0

    def _find_edge_roles(self, what: str, table: Table, options: ImportOptions) -> EdgeRoles:
        if what == REMOVED:
            return EdgeRoles.find(table, replace(options, weight=None, time=None, edge_attributes=None))
        edges = self._edges
        own = [name for name, info in edges.attributes.items() if not info.stored_as]
        for name in own:
            require_scalar(table.shown, name, edges.attributes[name], "added edges")
        weight, time = options.weight, options.time
        for role, has, given in (
            ("weight", edges.edge_weights() is not None, weight),
            ("time", edges.edge_times() is not None, time),
        ):
            if given is not None and not has:
                raise SourceError(
                    f"{table.shown}: --{role} {given} does not apply, since the edges of {self._dataset.path} have no "
                    f"{role}s; remove it"
                )
        if weight is None and edges.edge_weights() is not None:
            weight = self._by_name(table, "weight")
        if time is None and edges.edge_times() is not None:
            time = self._by_name(table, "time")
        self._require_columns(table, own, "edges")
        return EdgeRoles.find(table, replace(options, weight=weight, time=time, edge_attributes=tuple(own) or None))

    def _by_name(self, table: Table, role: str) -> str:
        stored = {"weight": WEIGHTS, "time": TIMES}[role]
        known = [name for name, info in self._edges.attributes.items() if info.stored_as == stored]
        found = [name for name in table.columns if name in known or role_of(name) == role]
        if not found:
            raise SourceError(
                f"{table.shown}: has no {role}s, and the edges of {self._dataset.path} have some; name the column: "
                f"--{role} COLUMN"
            )
        return found[0]

    def _find_node_roles(self, table: Table, options: ImportOptions) -> NodeRoles:
        own = {name: info for name, info in self._nodes.attributes.items() if not info.stored_as}
        given = [name for name in own if name in table.columns]
        for name in given:
            require_scalar(table.shown, name, own[name], "nodes")
        texts = [name for name in table.columns if role_of(name) == "label"]
        if options.label is None and len(texts) == 1 and self._dataset.names(CLASS_NAMES) is not None:
            # An import takes texts of that name for what to call the nodes; here classes are known to have names.
            options = replace(options, label=(texts[0],))
        roles = NodeRoles.find(table, replace(options, node_attributes=tuple(given) or None))
        nodes, path = self._nodes, self._dataset.path
        for what, has, columns, option in (
            ("features", nodes.feature_dim > 0, roles.features, "--features"),
            ("labels", nodes.has_labels, roles.labels, "--label"),
            ("splits", nodes.num_splits > 0, [roles.split or next(iter(roles.masks), None)], "--split"),
        ):
            if not has and any(each is not None for each in columns):
                raise SourceError(
                    f"{table.shown}: has {what}, and the nodes of {path} have none; remove the columns, or name others "
                    f"with {option}"
                )
        return roles

    def _require_columns(self, table: Table, names: Iterable[str], what: str) -> None:
        missing = [name for name in names if name not in table.columns]
        if missing:
            raise SourceError(
                f"{table.shown}: has no column '{missing[0]}', which the {what} of {self._dataset.path} have; add it"
            )

    def _read_edges(self, what: str, nodes: NodeIds, work: ImportTools) -> DeltaEdges:
        table, roles = self._tables[what], self._edge_roles[what]
        work = replace(work, part=what)
        rows = read_rows(table, roles.columns, self._ids, work)
        columns: dict[str, Column] = {}
        if roles.weight is not None:
            columns[WEIGHTS] = TableValues(rows, weight_value(roles.weight), "float32", work, column=roles.weight)
        if roles.time is not None:
            columns[TIMES] = TableValues(rows, time_value(roles.time), "int64", work, column=roles.time)
        attributes = open_attributes(rows, roles.attributes, work)
        value_bytes = sum(each.dtype.itemsize for each in columns.values())
        value_bytes += sum(each.row_bytes for each in attributes.values())
        work.held.enter_context(work.budget.reserve(_RESERVED, rows.num_rows * (_ENDS_BYTES + value_bytes)))
        values = (id_value(roles.source, self._ids, "source"), id_value(roles.destination, self._ids, "destination"))
        groups = Groups.that_fit(work)
        with work.budget.reserve("numbering edges", groups.num_bytes), open_duck(work, 0, work.threads) as duck:
            tables = (work_key(each, self._ids) for each in self._tables.values())
            key = "\n".join([*tables, *values, self._dataset.hash])
            pairs = number_edges(rows, values, (nodes, nodes), key, groups, duck, work)
        sources, destinations = pairs.read(0, rows.num_rows)
        found = {name: _gathered(column) for name, column in columns.items()}
        for name, attribute in attributes.items():
            found[name] = self._as_stored(table, name, attribute)
        return DeltaEdges(
            sources=sources.astype(np.int64),
            destinations=destinations.astype(np.int64),
            columns=found,
            unknown=partial(self._unknown_edge, rows, values, work),
        )

    def _as_stored(self, table: Table, name: str, attribute: SourceAttribute) -> NDArray[Any]:
        assert attribute.values is not None
        wanted = self._edges.attributes[name]
        return converted(_gathered(attribute.values), wanted.stored_dtype, f"{table.shown}, column '{name}'")

    def _unknown_edge(self, rows: TableRows, values: tuple[str, str], work: ImportTools, edge: int) -> SourceError:
        with open_duck(work, 0) as duck, rows.faults():
            source, destination = (rows.value(edge, value, duck) for value in values)
        return SourceError(
            f"{rows.place(edge)}: the graph has no edge from {source} to {destination} to remove; remove the row"
        )

    def _read_nodes(self, roles: NodeRoles, known: KnownIds, work: ImportTools) -> tuple[DeltaNodes, NodeIds]:
        table = self._tables[NODES]
        rows = read_rows(table, roles.columns, self._ids, work)
        if rows.num_rows == 0:
            return no_nodes(known)
        nodes, ids = known.match(rows, id_value(roles.id, self._ids, "id"))
        found = open_node_columns(rows, replace(roles, labels=()), None, work)
        labels = self._open_labels(rows, roles, work)
        features = found.features
        if features is not None and features.shape[1] != self._nodes.feature_dim:
            raise SourceError(
                f"{table.shown}: has {features.shape[1]} feature columns, and the nodes of {self._dataset.path} have "
                f"{self._nodes.feature_dim}; give the same columns as the import had, or name them with --features"
            )
        if nodes.num_new:
            self._require_all(table, features)
        has_splits = roles.split is not None or bool(roles.masks)
        num_splits = max((len(each) for each in found.splits.values()), default=self._nodes.num_splits)
        if has_splits and num_splits != self._nodes.num_splits:
            raise SourceError(
                f"{table.shown}: has {num_splits} splits, and {self._dataset.path} has {self._nodes.num_splits}; give "
                "one mask of a part for each split"
            )
        attributes = {}
        for name, each in open_attributes(rows, roles.attributes, work).items():
            attributes[name] = replace(each, info=self._nodes.attributes[name])
        return replace(
            nodes,
            features=features,
            labels=labels,
            splits=found.splits if has_splits else None,
            attributes=attributes,
        ), ids

    def _require_all(self, table: Table, features: Column | None) -> None:
        """Raise SourceError if new nodes lack features or attributes. A missing label is none."""
        if self._nodes.feature_dim and features is None:
            raise SourceError(
                f"{table.shown}: new nodes need features, {self._nodes.feature_dim} columns of numbers; add them"
            )
        own = {name: info for name, info in self._nodes.attributes.items() if not info.stored_as}
        for name, info in own.items():
            require_scalar(table.shown, name, info, "new nodes")
        self._require_columns(table, own, "nodes")

    def _open_labels(self, rows: TableRows, roles: NodeRoles, work: ImportTools) -> Column | None:
        if not roles.labels:
            return None
        column, names = roles.labels[0], self._dataset.names(CLASS_NAMES)
        with open_duck(work, 0) as duck, rows.faults():
            if names is None or column.kind not in ("text", "nothing"):
                kind = self._nodes.label_kind
                if column.kind == "text" and kind == CLASSES:
                    raise SourceError(
                        f"{rows.table.shown}: column '{column.name}' names classes by text, and the classes of "
                        f"{self._dataset.path} are numbers; give numbers"
                    )
                return open_labels(rows, roles.labels, kind, duck, work, roles.id).column
            found = find_class_names(rows, column, duck, work)
            unknown = [name for name in found.names if name not in set(names)]
            if unknown:
                raise SourceError(
                    f"{rows.table.shown}, column '{column.name}': class '{unknown[0]}' is none of the {len(names)} "
                    f"classes of {self._dataset.path}; correct it, or import the whole graph again, which numbers "
                    "classes by name"
                )
        return TableValues(rows, ClassNames(column, tuple(names)).sql(), "int64", work, column=column)


def _find_files(source: Path) -> dict[str, tuple[Path, ...]]:
    """Find the tables of a delta by what they have. Raises SourceError for a folder without any."""
    with source_errors(str(source)):
        if not source.exists():
            raise SourceError(f"{source}: does not exist; give the folder or file of a delta")
        if not source.is_dir():
            if not has_table_suffix(source):
                raise SourceError(f"{source}: is no table; give a .parquet or .csv file, or a folder of tables")
            return {_content_of(source, source.name): (source,)}
    listed = find_files(source)
    found: dict[str, list[Path]] = {NODES: [], EDGES: [], REMOVED: []}
    for path in sorted((*listed.edges, *listed.nodes)):
        found[_content_of(path, str(path.relative_to(source)))].append(path)
    if not listed.edges:
        raise SourceError(
            f"{source}: has no edges.parquet, removed-edges.parquet or nodes.parquet (or .csv, or folders); add one"
        )
    return {what: tuple(paths) for what, paths in found.items() if paths}


def _content_of(path: Path, name: str) -> str:
    """Return what a table has, by its name. Raises SourceError for nodes to remove."""
    is_removed = bool(_REMOVED_WORDS & set(re.findall(r"[a-z]+", name.lower())))
    if what_of(name) != NODES:
        return REMOVED if is_removed else EDGES
    if is_removed:
        raise SourceError(
            f"{path}: nodes cannot be removed, since all that come after would get other numbers; remove their "
            "edges, or import the whole graph again"
        )
    return NODES


def _shown(source: Path, paths: Sequence[Path]) -> Path:
    return paths[0] if len(paths) == 1 else source


def _gathered(column: Column) -> NDArray[Any]:
    blocks = [np.asarray(block, column.dtype) for block in column.blocks()]
    return np.concatenate(blocks) if blocks else np.empty(0, column.dtype)


def require_scalar(shown: Path, name: str, info: AttributeInfo, what: str) -> None:
    """Raise SourceError for an attribute that is not one number, which no column of a table can have."""
    if info.shape != () or info.dtype == "bfloat16":
        raise SourceError(
            f"{shown}: {what} need attribute '{name}', {info.dtype} of shape {info.shape}, and a table has single "
            "numbers only; import the whole graph again"
        )


def converted(values: NDArray[Any], dtype: np.dtype[Any], where: str) -> NDArray[Any]:
    """Convert values to the dtype of an attribute. Raises SourceError for a value that it cannot hold."""
    if dtype == values.dtype:
        return values
    with np.errstate(invalid="ignore", over="ignore"):
        stored = values.astype(dtype)
    is_same = (stored == values) | (values != values)
    if dtype.kind != "f" and not is_same.all():
        bad = values[np.argmin(is_same)]
        raise SourceError(f"{where}: {bad} does not fit {dtype.name}, the attribute's type; correct it")
    return stored
