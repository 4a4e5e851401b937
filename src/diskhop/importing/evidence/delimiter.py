"""Decides what stands between the columns of a text, from its first rows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from diskhop.errors import SourceError
from diskhop.importing.evidence.names import find_ends
from diskhop.importing.evidence.rows import is_number, is_whole, num_filled, split_row

DELIMITERS = ("\t", ",", ";", " ", "|")
NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", " ": "space"}
# Characters that may be within the fields between others: names have spaces, and hardly tabs.
_WITHIN = {"\t": ",; |", ",": " |", ";": " |"}
_OF_SUFFIX = {".csv": ",", ".tsv": "\t"}


def find_delimiter(rows: Sequence[str], suffix: str, place: str) -> tuple[str, str]:
    """Find the delimiter of rows, and say why it is taken. suffix: of the file's name. place: of the first row.

    Those that give every row equally many columns fit. Of several, one that leaves quoted fields whole is taken, then
    one that makes known names of columns in the first row, else the one with most columns of whole numbers, else the
    one that is usual, which others may be within. Where none fits, it is the first in the first row: a row that does
    not fit is then named. Raises SourceError, which asks for --delimiter, where several fit alike.
    """
    usual = _OF_SUFFIX.get(suffix, "")
    in_order = [each for each in dict.fromkeys((usual, *DELIMITERS)) if each]
    fitting = {each: found for each in in_order if (found := _columns(rows, each)) is not None}
    if fitting:
        best = max(found[1:] for found in fitting.values())
        alike = [each for each in in_order if each in fitting and fitting[each][1:] == best]
        first = alike[0]
        # Two words with a comma or a bar within may be two columns by either; tabs among numbers are spaces.
        is_either = first != "\t" and any(each in " |" and fitting[each][0] == 2 for each in alike[1:])
        if (is_either and fitting[first][0] == 2) or [each for each in alike[1:] if each not in _WITHIN.get(first, "")]:
            ways = " or ".join(f"--delimiter {shlex.quote(NAMES.get(each, each))}" for each in alike[:2])
            raise SourceError(f"{place}: several characters may separate the columns; add {ways}")
        return first, f"gives every sampled row {fitting[first][0]} columns"
    unquoted = re.sub(r'"[^"]*"', "q", rows[0]).strip()
    for each in in_order:
        if each in unquoted:
            return each, "the first that is usual in the first row"
    return usual or ",", "usual"


def _columns(rows: Sequence[str], delimiter: str) -> tuple[int, bool, bool, int] | None:
    """Return the number of columns, and how well they look; None: rows differ.

    They look well if no quoted field is cut, if the first row has known names, and by their columns of whole numbers.
    """
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
    is_whole_quote = not any(_cuts_quotes(row, fields) for row, fields in zip(rows, split, strict=True))
    return count, is_whole_quote, bool(find_ends(split[0])), sum(wholes)


def _cuts_quotes(row: str, fields: Sequence[str]) -> bool:
    """Check whether a field has a quote of a field that another delimiter leaves whole."""
    return any(field.count('"') % 2 == 1 and '"{}"'.format(field.replace('"', '""')) not in row for field in fields)


def _is_numbers(row: str) -> bool:
    return all(is_number(field) for field in row.split())
