"""SQL that reads the values of a table's columns strictly.

A value that breaks a rule makes the query fail with an error that has the row, the rule, the value and the next step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diskhop.importing.options import IdKind
from diskhop.importing.tables.files import FAULT_MARK, TableColumn
from diskhop.runtime.duck import quoted

SPLIT_CODES = {"train": 0, "valid": 1, "test": 2}
_SPLIT_WORDS = {"train": 0, "valid": 1, "val": 1, "validation": 1, "test": 2, "none": -1, "": -1}
_MASK_WORDS = {1: ("1", "1.0", "true", "t", "yes"), 0: ("", "0", "0.0", "false", "f", "no")}
_WHOLE = "'[ \\t]*[0-9]+[ \\t]*'"
_WHOLE_FLOAT = "'[ \\t]*[0-9]+(\\.0*)?[ \\t]*'"
_SIGNED_WHOLE = "'[ \\t]*-?[0-9]+(\\.0*)?[ \\t]*'"


def id_value(column: TableColumn, kind: IdKind, what: str) -> str:
    """Return SQL of an id: BIGINT from 0, or VARCHAR. what: source, destination or id, for errors."""
    if kind == "string":
        text = f"CAST({column.sql} AS VARCHAR)"
        return _strict(text, f"{text} <> ''", column, f"the {what} ({column.name}) must be text that is not empty")
    # Whole numbers as programs with floats alone write them: 7.0.
    text = f"split_part({column.sql}, '.', 1)" if column.is_whole else column.sql
    value = f"TRY_CAST({text} AS BIGINT)"
    is_fit = f"{value} >= 0"
    if column.stored == "VARCHAR":
        is_fit = f"regexp_full_match({column.sql}, {_WHOLE_FLOAT if column.is_whole else _WHOLE}) AND {is_fit}"
    rule = f"the {what} ({column.name}) must be a whole number from 0 to 2^63 - 1"
    return _strict(value, is_fit, column, rule, "import ids as names: --ids string")


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


def whole_value(column: TableColumn) -> str:
    """Return SQL of a whole number: of the column's type, BIGINT for text."""
    stored = "BIGINT" if column.stored in ("VARCHAR", "HUGEINT", "UHUGEINT") else column.stored
    value = f"TRY_CAST({column.sql} AS {stored})"
    return _strict(value, f"{value} IS NOT NULL", column, f"the value ({column.name}) must be a whole number")


def number_value(column: TableColumn) -> str:
    """Return SQL of a number: FLOAT or DOUBLE, NaN where it is missing."""
    value = f"TRY_CAST({column.sql} AS {'FLOAT' if column.stored == 'FLOAT' else 'DOUBLE'})"
    return _number_or_nan(value, column, "value")


def flag_value(column: TableColumn) -> str:
    """Return SQL of a flag: TINYINT, 0 or 1."""
    value = f"CAST({column.sql} AS TINYINT)"
    return _strict(value, f"{column.sql} IS NOT NULL", column, f"the value ({column.name}) must be true or false")


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
    advice = "fix it, or import numbers to predict with --label-kind values"
    return f"CASE WHEN {is_none} THEN -1 ELSE {_strict(number, is_fit, column, rule, advice)} END"


def split_value(column: TableColumn) -> str:
    """Return SQL of a split: INTEGER, a code of SPLIT_CODES or -1."""
    word = f"lower(coalesce({column.sql}, ''))"
    cases = " ".join(f"WHEN {quoted(each)} THEN {code}" for each, code in _SPLIT_WORDS.items())
    known = ", ".join(map(quoted, _SPLIT_WORDS))
    rule = f"the split ({column.name}) must be train, valid, test, none or empty"
    return _strict(f"CASE {word} {cases} END", f"{word} IN ({known})", column, rule)


def mask_value(column: TableColumn) -> str:
    """Return SQL of a mask: INTEGER, 1 for nodes that are in the part."""
    word = f"lower(trim(coalesce(CAST({column.sql} AS VARCHAR), '')))"
    cases = " ".join(
        f"WHEN {word} IN ({', '.join(map(quoted, words))}) THEN {code}" for code, words in _MASK_WORDS.items()
    )
    known = ", ".join(quoted(each) for words in _MASK_WORDS.values() for each in words)
    rule = f"the mask ({column.name}) must be 0 or 1, or true or false"
    advice = "fix it, or name the columns with features: --features A,B"
    return _strict(f"CASE {cases} END", f"{word} IN ({known})", column, rule, advice)


def numbers_value(
    columns: Sequence[TableColumn], dims: Mapping[str, int], *, takes_missing: bool = False
) -> tuple[str, str]:
    """Return SQL of a list of numbers, null for a value that is none, and their type.

    dims: lengths of lists. takes_missing: a value that is null or empty is NaN, and one that is no number is refused.
    """
    stored = "FLOAT" if all(column.stored.startswith("FLOAT") for column in columns) else "DOUBLE"
    lists = []
    scalars: list[str] = []
    for column in columns:
        if column.kind != "numbers":
            number = f"TRY_CAST({column.sql} AS {stored})"
            scalars.append(_number_or_nan(number, column) if takes_missing else number)
            continue
        if scalars:
            lists.append(f"[{', '.join(scalars)}]")
            scalars = []
        rule = f"the list ({column.name}) must have {dims[column.name]} numbers, as the first has"
        value = f"CAST({column.sql} AS {stored}[])"
        value = _strict(value, f"len({column.sql}) = {dims[column.name]}", column, rule)
        if takes_missing:
            nan = f"CAST('nan' AS {stored})"
            nothing = f"[{', '.join([nan] * dims[column.name])}]"
            value = f"CASE WHEN {column.sql} IS NULL THEN {nothing} ELSE {value} END"
        lists.append(value)
    if scalars:
        lists.append(f"[{', '.join(scalars)}]")
    return (lists[0] if len(lists) == 1 else f"flatten([{', '.join(lists)}])"), stored


def _number_or_nan(number: str, column: TableColumn, what: str = "label") -> str:
    is_none = f"{column.sql} IS NULL"
    if column.stored == "VARCHAR":
        is_none += f" OR trim({column.sql}) = ''"
    rule = f"the {what} ({column.name}) must be a number, or empty for none"
    return f"CASE WHEN {is_none} THEN 'nan' ELSE {_strict(number, f'{number} IS NOT NULL', column, rule)} END"


def _strict(value: str, is_fit: str, column: TableColumn, rule: str, advice: str = "fix it") -> str:
    # concat_ws skips a value that is null.
    parts = f"'', file_row_number, filename, {quoted(rule)}, {quoted(advice)}, CAST({column.sql} AS VARCHAR)"
    fault = f"error(concat_ws({quoted(FAULT_MARK)}, {parts}))"
    return f"CASE WHEN {is_fit} THEN {value} ELSE {fault} END"
