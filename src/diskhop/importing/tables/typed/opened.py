"""Tables per type that are opened: their columns by role, and what schema.toml says that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from diskhop.errors import SourceError
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.options import OF_CSV, ImportOptions
from diskhop.importing.source_file import SourceFile, source_errors
from diskhop.importing.tables.files import PARQUET, Table, TableColumn, open_table
from diskhop.importing.tables.roles import EdgeRoles, NodeRoles, type_of
from diskhop.importing.tables.typed.evidence import ends_by_names
from diskhop.importing.tables.typed.schema import Ends, TypeTable, near
from diskhop.importing.text.streams import damage_errors, open_text
from diskhop.importing.text.suffixes import text_suffix
from diskhop.runtime.duck import Duck

_MOST_HEADER_BYTES = 1 << 16
_OPTION_OF = {"edge_columns": "source", "node_attributes": "attributes", "edge_attributes": "attributes"}
_FLAG = re.compile(r"--(edge-columns|node-attributes|edge-attributes|label-kind|id|features|label|split|weight|time)\b")

# The hint of a column that is not imported: the option, the column, and what it does.
_HINT = re.compile(r"--([a-z-]+) (\S+) (takes|makes)")


@dataclass(frozen=True, slots=True)
class NodeTable:
    """Nodes of one type.

    table: their table; None: the ids that occur in edges, or 0 to count - 1.
    roles: of its columns.
    time: column of times, which are kept as the attribute "time".
    names: column of names.
    """

    given: TypeTable
    table: Table | None = None
    roles: NodeRoles | None = None
    time: TableColumn | None = None
    names: TableColumn | None = None

    @property
    def count(self) -> int | None:
        """Number of nodes that schema.toml states."""
        return self.given.given.get("count")

    @property
    def columns(self) -> list[TableColumn]:
        """All columns that have a role."""
        assert self.roles is not None, "the caller asks for a table's columns"
        more = [each for each in (self.time, self.names) if each is not None]
        return [*dict.fromkeys([*self.roles.columns, *more])]

    def decisions(self) -> Iterator[Decision]:
        """Describe the table for people."""
        name = self.given.name
        if self.table is None or self.roles is None:
            how = "the ids that occur in edges" if self.count is None else f"ids 0 to {self.count - 1}"
            yield Decision(f"nodes {name}", how, "no table")
            return
        yield _table_decision("nodes", name, self.table, self.given)
        for role, column in (("time", self.time), ("names", self.names)):
            if column is not None:
                yield Decision(f"{name}: column {column.name}", role, "schema.toml")
        taken = [f"column {each.name}" for each in (self.time, self.names) if each is not None]
        for each in (*self.table.decisions, *self.roles.decisions(self.table, _node_options(self.given, self.table))):
            if each.subject not in taken:
                yield _of_type(each, self.given)


@dataclass(frozen=True, slots=True)
class EdgeTable:
    """Edges of one type. ends: types of the nodes at both ends, with the relation. roles: of the table's columns."""

    given: TypeTable
    table: Table
    ends: Ends
    roles: EdgeRoles

    def decisions(self) -> Iterator[Decision]:
        """Describe the table for people."""
        yield _table_decision("edges", self.given.name, self.table, self.given)
        for each in (*self.table.decisions, *self.roles.decisions(self.table)):
            yield _of_type(each, self.given)


def open_nodes(given: TypeTable, options: ImportOptions, duck: Duck) -> NodeTable:
    """Open the table of a node type, if there is one. Raises SourceError."""
    if not given.files:
        return NodeTable(given)
    table = _open("nodes", given, options, duck)
    time, names = (_column(given, table, key) for key in ("time", "name"))
    columns = _node_options(given, table)
    with _schema_faults(given):
        roles = NodeRoles.find(table, columns)
        if time is not None and time.kind not in ("integer", "time"):
            raise SourceError(
                f"{table.shown}: --time must name a column of whole numbers or timestamps, '{time.name}' is "
                f"{type_of(time)}; choose another column"
            )
    extra = [each for each in (time, names) if each is not None]
    if given.names("features") is None and extra:
        kept = tuple(each for each in roles.features if each not in extra)
        roles = replace(roles, features=kept)
    return NodeTable(given, table, roles, time, names)


def open_edges(given: TypeTable, options: ImportOptions, duck: Duck) -> EdgeTable:
    """Open the table of an edge type. Raises SourceError."""
    assert given.ends is not None, "edges have ends"
    table = _open("edges", given, options, duck)
    columns: dict[str, Any] = {}
    named = [_column(given, table, key) for key in ("source", "destination")]
    if None not in named:
        columns["edge_columns"] = tuple(each.name for each in named if each is not None)
    elif any(named):
        raise _fault(given, "source", "must name the columns of both ends, as source and destination; add the other")
    else:
        found = ends_by_names(list(table.columns), given.ends) if table.has_names else None
        if found is not None:
            columns["edge_columns"] = found
    for key in ("weight", "time"):
        column = _column(given, table, key)
        if column is not None:
            columns[key] = column.name
    columns["edge_attributes"] = _columns(given, table, "attributes")
    with _schema_faults(given):
        roles = EdgeRoles.find(table, ImportOptions(**columns))
    return EdgeTable(given, table, given.ends, roles)


def column_names(files: tuple[Path, ...], options: ImportOptions, duck: Duck) -> list[str]:
    """List the columns of a table of edges whose types are not known yet, as its first line has them."""
    fields = _first_fields(files[0])
    if len(fields) > 1 and not fields[0].startswith("#"):
        return fields
    table = _open("edges", TypeTable(name="", files=files), options, duck)
    return list(table.columns) if table.has_names else []


def _open(what: str, given: TypeTable, options: ImportOptions, duck: Duck) -> Table:
    files = tuple(map(SourceFile.of, given.files))
    shown = given.files[0] if len(given.files) == 1 else given.files[0].parent
    of_text = {name: getattr(options, name) for name in OF_CSV}
    return open_table(shown, what, files, ImportOptions(**of_text, **_evidence(given)), duck)


def _evidence(given: TypeTable) -> dict[str, Any]:
    """Return names of columns by which the header of a text is recognised, as options have them."""
    if given.ends is None:
        named = {key: given.names(key) for key in ("id", "label", "split")}
        return {
            "label": named["label"],
            **{key: None if (names := named[key]) is None else names[0] for key in ("id", "split")},
        }
    ends = [given.given.get(key) for key in ("source", "destination")]
    if None not in ends:
        return {"edge_columns": tuple(ends)}
    return {"edge_columns": ends_by_names(_first_fields(given.files[0]), given.ends)}


def _first_fields(path: Path) -> list[str]:
    """Split the first line of a text wherever columns may end; [] for Parquet."""
    if text_suffix(path) == PARQUET:
        return []
    with source_errors(str(path)), damage_errors(path), open_text(path) as text:
        line = text.readline(_MOST_HEADER_BYTES).decode("utf-8", "replace")
    return [field.strip(' "') for field in re.split(r"[,;|\t]", line.strip())]


def _node_options(given: TypeTable, table: Table) -> ImportOptions:
    """Return the options of NodeRoles that schema.toml means. Raises SourceError for a column that is not there."""
    options: dict[str, Any] = {}
    for key in ("id", "split"):
        column = _column(given, table, key)
        if column is not None:
            options[key] = column.name
    for key, name in (("label", "label"), ("attributes", "node_attributes"), ("features", "features")):
        options[name] = _columns(given, table, key)
    return ImportOptions(**options)


def _columns(given: TypeTable, table: Table, key: str) -> tuple[str, ...] | None:
    """Return the columns that a key names or matches, each once; None: the key is not there."""
    names = given.names(key)
    if names is None:
        return None
    found: list[str] = []
    for name in names:
        matching = [each for each in table.columns if fnmatchcase(each, name)]
        found += [name] if name in table.columns else matching
        if name not in table.columns and not matching:
            raise _unknown_column(given, table, key, name)
    return tuple(dict.fromkeys(found))


def _column(given: TypeTable, table: Table, key: str) -> TableColumn | None:
    names = given.names(key)
    if names is None:
        return None
    if names[0] not in table.columns:
        raise _unknown_column(given, table, key, names[0])
    return table.columns[names[0]]


def _unknown_column(given: TypeTable, table: Table, key: str, name: str) -> SourceError:
    return _fault(
        given,
        key,
        f"{table.shown} has no column '{name}'{near(name, table.columns)}; {key} can name {', '.join(table.columns)}",
    )


def _fault(given: TypeTable, key: str, text: str) -> SourceError:
    return SourceError(text if given.where is None else f"{given.where(key)}: {text}")


@contextmanager
def _schema_faults(given: TypeTable) -> Iterator[None]:
    """Name the line of schema.toml in errors about columns, and its keys in place of options."""
    try:
        yield
    except SourceError as error:
        if given.where is None:
            # The options of one table do not apply to several.
            text = _FLAG.sub(lambda found: f"{_key_of(found[1])} in schema.toml", str(error))
            raise SourceError(text) from error
        found = _FLAG.search(str(error))
        key = _key_of(found[1]) if found else ""
        raise SourceError(f"{given.where(key)}: {_FLAG.sub(lambda each: _key_of(each[1]), str(error))}") from error


def _key_of(flag: str) -> str:
    name = flag.replace("-", "_")
    return _OPTION_OF.get(name, name)


def _table_decision(what: str, name: str, table: Table, given: TypeTable) -> Decision:
    return Decision(f"{what} {name}", str(table.shown.name), "by name" if given.where is None else "schema.toml")


def _of_type(decision: Decision, given: TypeTable) -> Decision:
    """Add the type to a decision on its table, and write keys of schema.toml in place of options."""
    why = decision.why
    if why == "--edge-columns":
        why = "by name" if given.where is None or "source" not in given.given else "schema.toml"
    why = _HINT.sub(lambda found: f'{_key_of(found[1])} = "{found[2]}" in schema.toml {found[3]}', why)
    why = _FLAG.sub(lambda found: f"{_key_of(found[1])} in schema.toml", why)
    return Decision(f"{given.name}: {decision.subject}", decision.role, why)
