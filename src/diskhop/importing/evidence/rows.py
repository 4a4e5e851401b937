"""Rows of text as fields, and what a field looks like."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

Look = Literal["empty", "integer", "number", "time", "text"]

INTEGER = re.compile(r"[+-]?[0-9]+")
# Whole numbers as programs with floats alone write them: 1.0, 2., 1.000000e+00.
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TIME = re.compile(r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}([T ].*)?|[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]*)?)?")
_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "nil", "-", "?", "inf", "-inf", "+inf"})


def split_row(text: str, delimiter: str) -> list[str]:
    """Split a row into fields; several spaces are one delimiter. Raises ValueError with the rule that it breaks."""
    if "\r" in text:
        raise ValueError("a line must end with LF or CR LF, got a CR within it; save the file with line feeds")
    if delimiter == " ":
        text = text.strip(" ")
    if '"' not in text:
        return re.split(" +", text) if delimiter == " " else text.split(delimiter)
    # Not the csv module: its limit of 131072 characters per field can only be raised for the whole process.
    field = re.compile('"([^"]*(?:""[^"]*)*)"(?![^D])|(?!")[^D]*'.replace("D", re.escape(delimiter)))
    fields = []
    end = -1
    while end < len(text):
        found = field.match(text, end + 1)
        if found is None:
            raise ValueError("a field that begins with a quote must end with one, on the same line; fix the line")
        quoted = found.group(1)
        fields.append(found.group() if quoted is None else quoted.replace('""', '"'))
        end = found.end()
        while delimiter == " " and text[end + 1 : end + 2] == " ":
            end += 1
    return fields


def num_filled(fields: Sequence[str]) -> int:
    """Count fields up to the last that is not empty."""
    return max((number for number, field in enumerate(fields, 1) if field.strip()), default=0)


def is_integer(field: str) -> bool:
    """Check whether a field is a whole number; it may still be too large or negative for an id."""
    return INTEGER.fullmatch(field.strip()) is not None


def is_whole(field: str) -> bool:
    """Check whether a field is a whole number that may be written as a float: 7, 7.0, 7.000e+00."""
    stripped = field.strip()
    return is_integer(stripped) or (_FLOAT.fullmatch(stripped) is not None and float(stripped).is_integer())


def is_number(field: str) -> bool:
    """Check whether a field is a whole number or a fraction."""
    return look_of(field) in ("integer", "number")


def look_of(field: str) -> Look:
    """Say what a field looks like."""
    stripped = field.strip()
    if stripped.lower() in _MISSING:
        return "empty"
    if INTEGER.fullmatch(stripped):
        return "integer"
    if _FLOAT.fullmatch(stripped):
        return "number"
    return "time" if _TIME.fullmatch(stripped) else "text"
