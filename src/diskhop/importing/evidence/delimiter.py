"""Decides what stands between the columns of a text, from its first rows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from diskhop.importing.evidence.rows import is_number, is_whole, num_filled, split_row

DELIMITERS = ("\t", ",", ";", " ", "|")
NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", " ": "space"}
_OF_SUFFIX = {".csv": ",", ".tsv": "\t"}


def find_delimiter(rows: Sequence[str], suffix: str) -> tuple[str, str]:
    """Find the delimiter of rows, and say why it is taken. suffix: of the file's name.

    Of those that give every row equally many columns, the one with most columns of whole numbers is taken, else the
    first that is usual. Where none does, it is the first in the first row: a row that does not fit is then named.
    """
    usual = _OF_SUFFIX.get(suffix, "")
    in_order = [each for each in dict.fromkeys((usual, *DELIMITERS)) if each]
    fitting = {each: found for each in in_order if (found := _columns(rows, each)) is not None}
    if fitting:
        best = max(fitting, key=lambda each: (fitting[each][1], -in_order.index(each)))
        return best, f"gives every sampled row {fitting[best][0]} columns"
    unquoted = re.sub(r'"[^"]*"', "q", rows[0]).strip()
    for each in in_order:
        if each in unquoted:
            return each, "the first that is usual in the first row"
    return usual or ",", "usual"


def _columns(rows: Sequence[str], delimiter: str) -> tuple[int, int] | None:
    """Return the number of columns, and how many of them are whole numbers below the first row; None: rows differ."""
    split = []
    for row in rows:
        try:
            # Tabs among spaces align columns of numbers.
            fields = split_row(row.replace("\t", " ") if delimiter == " " and _is_numbers(row) else row, delimiter)
        except ValueError:
            return None
        split.append(fields)
    filled = [num_filled(fields) for fields in split]
    count = max(filled)
    if count < 2 or min(len(set(filled)), len(set(map(len, split)))) > 1:
        return None
    below = split[1:] or split
    wholes = (all(column < len(row) and is_whole(row[column]) for row in below) for column in range(count))
    return count, sum(wholes)


def _is_numbers(row: str) -> bool:
    return all(is_number(field) for field in row.split())
