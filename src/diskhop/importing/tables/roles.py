"""Which column of a table is what, and the SQL that takes its values, strictly: what breaks a rule is an error of the
query, with the row, the rule and the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diskhop.errors import SourceError
from diskhop.importing.options import IdKind, ImportOptions
from diskhop.importing.tables.files import FAULT_MARK, Kind, Table, TableColumn
from diskhop.importing.text.layout import HEADERS
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
    """Columns of the table of edges."""

    source: TableColumn
    destination: TableColumn
    weight: TableColumn | None
    time: TableColumn | None

    @classmethod
    def find(cls, table: Table, options: ImportOptions) -> EdgeRoles:
        """As the options say, or the names do. Raises SourceError for columns that cannot be that."""
        names = options.edge_columns or _edge_columns(table)
        source, destination = (table.column(name, "--edge-columns") for name in names)
        weight = _of_kind(table, options.weight, "--weight", ("integer", "number", "boolean"), "numbers")
        time = _of_kind(table, options.time, "--time", ("integer", "time"), "whole numbers or timestamps")
        return cls(source=source, destination=destination, weight=weight, time=time)

    def told(self) -> dict[str, Any]:
        """For people."""
        roles = {"source": self.source, "destination": self.destination, "weight": self.weight, "time": self.time}
        return {role: column.name for role, column in roles.items() if column is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoles:
    """Columns of the table of nodes."""

    id: TableColumn
    features: tuple[TableColumn, ...]
    label: TableColumn | None
    split: TableColumn | None

    @classmethod
    def find(cls, table: Table, options: ImportOptions) -> NodeRoles:
        """As the options say, or the names and kinds do. Raises SourceError for columns that cannot be that."""
        names = list(table.columns)
        key = table.column(options.id or ("id" if "id" in names else names[0]), "--id")
        of_labels: tuple[Kind, ...] = ("integer", "number", "boolean", "nothing")
        of_splits: tuple[Kind, ...] = ("text", "nothing")
        label_name = options.label or _first_of(table, _LABEL_NAMES, of_labels, key)
        split_name = options.split or _first_of(table, _SPLIT_NAMES, of_splits, key)
        label = _of_kind(table, label_name, "--label", of_labels, "whole numbers from 0: number the classes first")
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

    def told(self) -> dict[str, Any]:
        """For people."""
        roles = {"id": self.id, "label": self.label, "split": self.split}
        told: dict[str, Any] = {role: column.name for role, column in roles.items() if column is not None}
        return {**told, "features": [column.name for column in self.features]}


def find_id_kind(columns: Sequence[tuple[Table, TableColumn]], wanted: IdKind | None) -> IdKind:
    """What the ids of all these columns are. Raises SourceError where they are not of one kind."""
    kinds = {}
    for table, column in columns:
        if column.kind not in ("integer", "text") and not (wanted and column.stored == "VARCHAR"):
            raise SourceError(
                f"{table.shown}: ids must be whole numbers or text, and column '{column.name}' is {_told(column)}; "
                "name another column, or cast it"
            )
        if wanted == "integer" and column.kind == "text" and column.stored != "VARCHAR":
            raise SourceError(f"{table.shown}: column '{column.name}' is {_told(column)}, not --ids integer")
        kinds[column.kind] = table, column
    if wanted is not None:
        return wanted
    if len(kinds) > 1:
        told = " and ".join(f"'{column.name}' of the {table.what} {_told(column)}" for table, column in kinds.values())
        raise SourceError(
            f"{columns[0][0].shown}: ids must be of one kind, got {told}; save them alike, or take all as --ids string"
        )
    return "integer" if "integer" in kinds else "string"


def id_value(column: TableColumn, kind: IdKind, what: str) -> str:
    """SQL: an id, BIGINT from 0 or VARCHAR. what: the end of an edge or the node, for errors."""
    if kind == "string":
        text = f"CAST({column.sql} AS VARCHAR)"
        # Names are kept as lines.
        is_fit = f"{text} <> '' AND NOT contains({text}, chr(10))"
        return _strict(text, is_fit, column, f"the {what} ({column.name}) must be text on one line")
    value = f"TRY_CAST({column.sql} AS BIGINT)"
    is_fit = f"{value} >= 0"
    if column.stored == "VARCHAR":
        is_fit = f"regexp_full_match({column.sql}, {_WHOLE}) AND {is_fit}"
    return _strict(value, is_fit, column, f"the {what} ({column.name}) must be a whole number from 0 to 2^63 - 1")


def weight_value(column: TableColumn) -> str:
    """SQL: a FLOAT."""
    value = f"TRY_CAST({column.sql} AS FLOAT)"
    return _strict(value, f"isfinite({value})", column, f"the weight ({column.name}) must be a finite number")


def time_value(column: TableColumn) -> str:
    """SQL: a BIGINT, of a timestamp its microseconds."""
    if column.kind == "time":
        # In text there may be an offset, which TIMESTAMP would leave out.
        stamp = f"TRY_CAST({column.sql} AS TIMESTAMPTZ)" if column.stored == "VARCHAR" else column.sql
        value = f"epoch_us({stamp})"
        return _strict(value, f"{value} IS NOT NULL", column, f"the time ({column.name}) must be a timestamp")
    value = f"TRY_CAST({column.sql} AS BIGINT)"
    is_fit = f"{value} IS NOT NULL"
    if column.stored == "VARCHAR":
        is_fit = f"regexp_full_match({column.sql}, '[ \\t]*-?[0-9]+[ \\t]*') AND {is_fit}"
    return _strict(value, is_fit, column, f"the time ({column.name}) must be a whole number below 2^63")


def label_value(column: TableColumn) -> str:
    """SQL: a BIGINT, -1 where there is none."""
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
    rule = f"the label ({column.name}) must be a whole number from 0, or nothing or -1 for none"
    return f"CASE WHEN {is_none} THEN -1 ELSE {_strict(number, is_fit, column, rule)} END"


def split_value(column: TableColumn) -> str:
    """SQL: an INTEGER, the code of a part or -1."""
    word = f"lower(coalesce({column.sql}, ''))"
    cases = " ".join(f"WHEN {quoted(each)} THEN {code}" for each, code in _SPLIT_WORDS.items())
    known = ", ".join(map(quoted, _SPLIT_WORDS))
    rule = f"the split ({column.name}) must be train, valid, test, or nothing or none"
    return _strict(f"CASE {word} {cases} END", f"{word} IN ({known})", column, rule)


def features_value(columns: Sequence[TableColumn], dims: Mapping[str, int]) -> tuple[str, str]:
    """SQL: a list of numbers, null where one is none, and their type. dims: numbers in each list."""
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
    # What is null is left out by concat_ws.
    told = f"'', file_row_number, filename, {quoted(rule)}, CAST({column.sql} AS VARCHAR)"
    fault = f"error(concat_ws({quoted(FAULT_MARK)}, {told}))"
    return f"CASE WHEN {is_fit} THEN {value} ELSE {fault} END"


def _edge_columns(table: Table) -> tuple[str, str]:
    names = {name.lower(): name for name in table.columns}
    for source, destination in HEADERS:
        if source in names and destination in names:
            return names[source], names[destination]
    if len(names) < 2:
        raise SourceError(f"{table.shown}: must have two columns, source and destination; it has {', '.join(names)}")
    source, destination = list(table.columns)[:2]
    return source, destination


def _first_of(table: Table, names: Sequence[str], kinds: Sequence[Kind], key: TableColumn) -> str | None:
    """What nobody named is taken only where it fits."""
    fitting = (table.columns[name] for name in names if name in table.columns)
    return next((column.name for column in fitting if column.kind in kinds and column != key), None)


def _of_kind(table: Table, name: str | None, option: str, kinds: Sequence[Kind], wanted: str) -> TableColumn | None:
    if name is None:
        return None
    column = table.column(name, option)
    if column.kind not in kinds:
        raise SourceError(
            f"{table.shown}: {option} must name a column of {wanted}, and '{name}' is {_told(column)}; "
            "name another column"
        )
    return column


def _told(column: TableColumn) -> str:
    if column.kind == "nothing":
        return "empty"
    return f"of {column.kind}s in CSV" if column.stored == "VARCHAR" and column.kind != "text" else column.stored
