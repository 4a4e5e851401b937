"""Roles of a table's columns, and SQL that reads their values strictly.

A value that breaks a rule makes the query fail with an error that has the row, the rule and the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diskhop.errors import SourceError
from diskhop.importing.evidence.columns import find_end_columns
from diskhop.importing.options import IdKind, ImportOptions
from diskhop.importing.tables.files import FAULT_MARK, Kind, Table, TableColumn
from diskhop.runtime.duck import quoted

SPLIT_CODES = {"train": 0, "valid": 1, "test": 2}
_SPLIT_WORDS = {"train": 0, "valid": 1, "val": 1, "validation": 1, "test": 2, "none": -1, "": -1}
_LABEL_NAMES = ("label", "y")
_SPLIT_NAMES = ("split",)
_FEATURE_KINDS: tuple[Kind, ...] = ("integer", "number", "numbers")
_WHOLE = "'[ \\t]*[0-9]+[ \\t]*'"
_SIGNED_WHOLE = "'[ \\t]*-?[0-9]+(\\.0*)?[ \\t]*'"


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRoles:
    """Columns of the table of edges by role; None: no column."""

    source: TableColumn
    destination: TableColumn
    weight: TableColumn | None
    time: TableColumn | None

    @classmethod
    def find(cls, table: Table, options: ImportOptions) -> EdgeRoles:
        """Find the columns by options, else by name. Raises SourceError for a column that does not fit its role."""
        names = options.edge_columns or _edge_columns(table)
        source, destination = (table.column(name, "--edge-columns") for name in names)
        weight = _of_kind(table, options.weight, "--weight", ("integer", "number", "boolean"), "numbers")
        time = _of_kind(table, options.time, "--time", ("integer", "time"), "whole numbers or timestamps")
        return cls(source=source, destination=destination, weight=weight, time=time)

    def names(self) -> dict[str, Any]:
        """Return the names of the columns by role, for people."""
        roles = {"source": self.source, "destination": self.destination, "weight": self.weight, "time": self.time}
        return {role: column.name for role, column in roles.items() if column is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoles:
    """Columns of the table of nodes by role; None: no column."""

    id: TableColumn
    features: tuple[TableColumn, ...]
    label: TableColumn | None
    split: TableColumn | None

    @classmethod
    def find(cls, table: Table, options: ImportOptions) -> NodeRoles:
        """Find the columns by options, else by name and kind. Raises SourceError for a column that does not fit."""
        names = list(table.columns)
        key = table.column(options.id or ("id" if "id" in names else names[0]), "--id")
        of_labels: tuple[Kind, ...] = ("integer", "number", "boolean", "nothing")
        of_splits: tuple[Kind, ...] = ("text", "nothing")
        label_name = options.label or _first_of(table, _LABEL_NAMES, of_labels, key)
        split_name = options.split or _first_of(table, _SPLIT_NAMES, of_splits, key)
        label = _of_kind(table, label_name, "--label", of_labels, "whole numbers from 0 (number the classes first)")
        split = _of_kind(table, split_name, "--split", of_splits, "train, valid, test or none")
        if options.features is None:
            taken = [key, label, split]
            features = [each for each in table.columns.values() if each.kind in _FEATURE_KINDS and each not in taken]
        else:
            found = (
                _of_kind(table, name, "--features", (*_FEATURE_KINDS, "boolean"), "numbers")
                for name in options.features
            )
            features = [column for column in found if column is not None]
        return cls(id=key, features=tuple(features), label=label, split=split)

    def names(self) -> dict[str, Any]:
        """Return the names of the columns by role, for people."""
        roles = {"id": self.id, "label": self.label, "split": self.split}
        names: dict[str, Any] = {role: column.name for role, column in roles.items() if column is not None}
        return {**names, "features": [column.name for column in self.features]}


def find_id_kind(columns: Sequence[tuple[Table, TableColumn]], wanted: IdKind | None) -> IdKind:
    """Find the kind of ids that all these columns have. Raises SourceError if they differ."""
    kinds = {}
    for table, column in columns:
        if column.kind not in ("integer", "text") and not (wanted and column.stored == "VARCHAR"):
            raise SourceError(
                f"{table.shown}: ids must be whole numbers or text, column '{column.name}' is {_type_of(column)}; "
                "choose another column, or cast it"
            )
        if wanted == "integer" and column.kind == "text" and column.stored != "VARCHAR":
            raise SourceError(
                f"{table.shown}: column '{column.name}' is {_type_of(column)}, and --ids integer requires "
                "whole numbers; use --ids string"
            )
        kinds[column.kind] = table, column
    if wanted is not None:
        return wanted
    if len(kinds) > 1:
        found = " and ".join(
            f"'{column.name}' of the {table.what} {_type_of(column)}" for table, column in kinds.values()
        )
        raise SourceError(
            f"{columns[0][0].shown}: ids must be of one kind, got {found}; save them alike, or use --ids string"
        )
    return "integer" if "integer" in kinds else "string"


def id_value(column: TableColumn, kind: IdKind, what: str) -> str:
    """Return SQL of an id: BIGINT from 0, or VARCHAR. what: source, destination or id, for errors."""
    if kind == "string":
        text = f"CAST({column.sql} AS VARCHAR)"
        # Names are stored as lines of a file.
        is_fit = f"{text} <> '' AND NOT contains({text}, chr(10))"
        return _strict(text, is_fit, column, f"the {what} ({column.name}) must be text on one line")
    value = f"TRY_CAST({column.sql} AS BIGINT)"
    is_fit = f"{value} >= 0"
    if column.stored == "VARCHAR":
        is_fit = f"regexp_full_match({column.sql}, {_WHOLE}) AND {is_fit}"
    return _strict(value, is_fit, column, f"the {what} ({column.name}) must be a whole number from 0 to 2^63 - 1")


def weight_value(column: TableColumn) -> str:
    """Return SQL of a weight: FLOAT."""
    value = f"TRY_CAST({column.sql} AS FLOAT)"
    return _strict(value, f"isfinite({value})", column, f"the weight ({column.name}) must be a finite number")


def time_value(column: TableColumn) -> str:
    """Return SQL of a time: BIGINT, the microseconds of a timestamp."""
    if column.kind == "time":
        # Text may have a UTC offset, which TIMESTAMP would ignore.
        stamp = f"TRY_CAST({column.sql} AS TIMESTAMPTZ)" if column.stored == "VARCHAR" else column.sql
        value = f"epoch_us({stamp})"
        return _strict(value, f"{value} IS NOT NULL", column, f"the time ({column.name}) must be a timestamp")
    value = f"TRY_CAST({column.sql} AS BIGINT)"
    is_fit = f"{value} IS NOT NULL"
    if column.stored == "VARCHAR":
        is_fit = f"regexp_full_match({column.sql}, '[ \\t]*-?[0-9]+[ \\t]*') AND {is_fit}"
    return _strict(value, is_fit, column, f"the time ({column.name}) must be a whole number below 2^63")


def label_value(column: TableColumn) -> str:
    """Return SQL of a label: BIGINT, -1 for none."""
    if column.stored == "VARCHAR":
        number = f"TRY_CAST(TRY_CAST({column.sql} AS DOUBLE) AS BIGINT)"
        is_fit = f"regexp_full_match({column.sql}, {_SIGNED_WHOLE}) AND {number} >= -1"
    elif column.kind == "number":
        number = f"TRY_CAST({column.sql} AS BIGINT)"
        is_fit = f"{column.sql} = trunc({column.sql}) AND {number} >= -1"
    else:
        number = f"TRY_CAST({column.sql} AS BIGINT)"
        is_fit = f"{number} >= -1"
    is_none = f"{column.sql} IS NULL"
    if column.stored in ("FLOAT", "DOUBLE"):
        is_none += f" OR isnan({column.sql})"
    rule = f"the label ({column.name}) must be a whole number from 0, or empty or -1 for none"
    return f"CASE WHEN {is_none} THEN -1 ELSE {_strict(number, is_fit, column, rule)} END"


def split_value(column: TableColumn) -> str:
    """Return SQL of a split: INTEGER, a code of SPLIT_CODES or -1."""
    word = f"lower(coalesce({column.sql}, ''))"
    cases = " ".join(f"WHEN {quoted(each)} THEN {code}" for each, code in _SPLIT_WORDS.items())
    known = ", ".join(map(quoted, _SPLIT_WORDS))
    rule = f"the split ({column.name}) must be train, valid, test, none or empty"
    return _strict(f"CASE {word} {cases} END", f"{word} IN ({known})", column, rule)


def features_value(columns: Sequence[TableColumn], dims: Mapping[str, int]) -> tuple[str, str]:
    """Return SQL of a list of numbers, null for a value that is none, and their type. dims: lengths of lists."""
    stored = "FLOAT" if all(column.stored.startswith("FLOAT") for column in columns) else "DOUBLE"
    lists = []
    scalars: list[str] = []
    for column in columns:
        if column.kind != "numbers":
            scalars.append(f"TRY_CAST({column.sql} AS {stored})")
            continue
        if scalars:
            lists.append(f"[{', '.join(scalars)}]")
            scalars = []
        rule = f"the list ({column.name}) must have {dims[column.name]} numbers, as the first has"
        value = f"CAST({column.sql} AS {stored}[])"
        lists.append(_strict(value, f"len({column.sql}) = {dims[column.name]}", column, rule))
    if scalars:
        lists.append(f"[{', '.join(scalars)}]")
    return (lists[0] if len(lists) == 1 else f"flatten([{', '.join(lists)}])"), stored


def _strict(value: str, is_fit: str, column: TableColumn, rule: str) -> str:
    # concat_ws skips a value that is null.
    parts = f"'', file_row_number, filename, {quoted(rule)}, CAST({column.sql} AS VARCHAR)"
    fault = f"error(concat_ws({quoted(FAULT_MARK)}, {parts}))"
    return f"CASE WHEN {is_fit} THEN {value} ELSE {fault} END"


def _edge_columns(table: Table) -> tuple[str, str]:
    names = list(table.columns)
    filled = [place for place, column in enumerate(table.columns.values()) if column.kind != "nothing"]
    ends = find_end_columns(names, filled, str(table.shown), "--edge-columns", by_place=True).ends
    return names[ends.source], names[ends.destination]


def _first_of(table: Table, names: Sequence[str], kinds: Sequence[Kind], key: TableColumn) -> str | None:
    """Find a column by its usual names, if it fits; None: there is none."""
    fitting = (table.columns[name] for name in names if name in table.columns)
    return next((column.name for column in fitting if column.kind in kinds and column != key), None)


def _of_kind(table: Table, name: str | None, option: str, kinds: Sequence[Kind], wanted: str) -> TableColumn | None:
    if name is None:
        return None
    column = table.column(name, option)
    if column.kind not in kinds:
        raise SourceError(
            f"{table.shown}: {option} must name a column of {wanted}, '{name}' is {_type_of(column)}; "
            "choose another column"
        )
    return column


def _type_of(column: TableColumn) -> str:
    if column.kind == "nothing":
        return "empty"
    return f"of {column.kind}s in CSV" if column.stored == "VARCHAR" and column.kind != "text" else column.stored
