"""Decides whether the parts of a table begin with a header, from the first rows of all parts."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from diskhop.errors import SourceError
from diskhop.importing.evidence.names import find_ends, is_end_name, role_of
from diskhop.importing.evidence.rows import Look, look_of, num_filled
from diskhop.importing.shorten import shorten

# Names of columns are shorter than keys such as hashes.
_SHORTEST_KEY = 16
# Parts with few rows begin with the same row by chance: rows after the first, times parts that repeat it.
_FEWEST_ROWS = 6
# Rows of numbers below words of which none is a known name of a column.
_FEWEST_NUMBERS = 3
_DIGITS = re.compile("[0-9]+")


@dataclass(frozen=True, slots=True)
class Part:
    """The first rows of a file.

    place: file and line of the first row, for errors.
    rows: fields of the rows; at least one row.
    """

    place: str
    rows: Sequence[Sequence[str]]

    @property
    def first(self) -> list[str]:
        """Fields of the first row, without blanks around them."""
        return [field.strip() for field in self.rows[0]]


@dataclass(frozen=True, slots=True)
class Header:
    """Decision whether each part begins with a header, and why."""

    parts: tuple[bool, ...]
    why: str


def find_header(parts: Sequence[Part], given: bool | None, named: Collection[str], is_nodes: bool = False) -> Header:
    """Decide which parts begin with a header.

    given: the option. named: names of columns that options use. is_nodes: whether the rows are nodes, not edges.
    Raises SourceError, which asks for --header or --no-header, where the evidence is for both.
    """
    if given is not None:
        return Header((given,) * len(parts), "--header" if given else "--no-header")
    why = [_reason(part, named, is_nodes) for part in parts]
    firsts = {tuple(part.first) for part in parts}
    if len(parts) > 1 and len(firsts) == 1 and not any(why) and _may_name(parts[0].first):
        others = [row for part in parts for row in part.rows[1:]]
        if set(parts[0].first) & {field.strip() for row in others for field in row}:
            raise _undecided(parts[0], "is the first row of every part, and its words are in other rows")
        if (len(parts) - 1) * len(others) < _FEWEST_ROWS:
            raise _undecided(parts[0], "is the first row of every part, and too few other rows show that it is none")
        return Header((True,) * len(parts), "the same first row in every part; if it is a row, add --no-header")
    found = {tuple(part.first): each for part, each in zip(parts, why, strict=True) if each}
    if not found:
        # Edges of more columns are refused until two are named.
        count = num_filled(parts[0].first)
        is_read = count == 2 or (count > 2 and (is_nodes or len(named) > 0))
        if is_read and _may_name(parts[0].first) and not _is_row(parts):
            raise _undecided(parts[0], "has words, other rows have words too, and nothing shows that it is one of them")
        return Header((False,) * len(parts), _why_not(parts[0]))
    if len(found) > 1 and _BY_LOOKS in found.values():
        part = next(part for part, each in zip(parts, why, strict=True) if each == _BY_LOOKS)
        raise _undecided(part, "stands above numbers, and other parts begin with other words")
    reason = next(iter(found.values()))
    if reason == _BY_NAMES and any(
        each and _recurs(part.first, part.rows[1:]) for part, each in zip(parts, why, strict=True)
    ):
        raise _undecided(parts[why.index(reason)], "has known names of columns, which are in other rows too")
    if reason == _BY_LOOKS and not is_nodes and not any(map(role_of, parts[why.index(reason)].first)):
        below = [row for part, each in zip(parts, why, strict=True) if each for row in part.rows[1:]]
        # Numbers count nodes from 0 or 1; names such as 1984 do not.
        if len(below) < _FEWEST_NUMBERS and not {"0", "1"} & {field.strip() for row in below for field in row}:
            raise _undecided(parts[why.index(reason)], "stands above so few numbers that they may be names")
    # A part with a header alone gives no evidence but its words.
    flags = tuple(bool(each) or tuple(part.first) in found for part, each in zip(parts, why, strict=True))
    return Header(flags, f"{reason}; if it is a row, add --no-header" if reason == _BY_LOOKS else reason)


def with_row_names(part: Part, named: Collection[str], is_nodes: bool = False) -> Part:
    """Give a header that is one column short a first column without a name: programs leave that of row names out."""
    counts = {num_filled(row) for row in part.rows[1:]}
    if counts != {len(part.first) + 1} or len(part.first) < 2:
        return part
    named_part = Part(part.place, [["", *part.rows[0]], *part.rows[1:]])
    return named_part if _reason(named_part, named, is_nodes) else part


_BY_LOOKS = "words above numbers"
_BY_NAMES = "known names of columns"
_BY_OPTIONS = "names of columns that options use"


def _reason(part: Part, named: Collection[str], is_nodes: bool) -> str:
    """Say what shows that the first row is a header; empty: nothing does."""
    first = part.first
    if named and set(named) <= set(first) and not all(name.isdecimal() for name in named):
        return _BY_OPTIONS
    if _is_index_of_numbers(part):
        return "the names that pandas gives: 0, 1, 2 and none above the row numbers"
    if not _may_name(first, has_numbers=True):
        if all(map(is_end_name, first)):
            raise _undecided(part, "has a known name of a column, twice")
        return ""
    looks = [look_of(field) for field in first]
    if find_ends(first) and (is_nodes or "integer" not in looks):
        return _BY_NAMES
    if _are_words_above_numbers(part, looks, is_nodes):
        return _BY_LOOKS
    if not is_nodes and ("integer" in looks or "number" in looks):
        return ""
    known = [role for role in map(role_of, first) if role not in (None, "index")]
    count = num_filled(first)
    enough = 1 if count > 2 or is_nodes else 2
    if len(known) < enough and count == 2 and any(map(is_end_name, first)):
        raise _undecided(part, "has one known name of a column")
    return _BY_NAMES if len(known) >= enough else ""


def _are_words_above_numbers(part: Part, looks: Sequence[Look], is_nodes: bool) -> bool:
    """Check whether a word of the first row is above numbers alone, which names among names are not."""
    above = []
    for column, look in enumerate(looks):
        below = [look_of(row[column]) for row in part.rows[1:] if column < len(row)]
        filled = [each for each in below if each != "empty"]
        if look == "text" and filled and "text" not in filled:
            above.append((column, len(filled)))
    if is_nodes or not above:
        return bool(above)
    if set(looks) - {"text", "empty"}:  # a row of edges may have words and numbers
        return False
    # Where ids are names, one that looks like a number is no evidence, but a column next to them is.
    is_known = any(num_rows > 1 or role_of(part.first[column]) is not None for column, num_rows in above)
    return len(above) == len(looks) - looks.count("empty") or (len(looks) > 2 and is_known)


def _may_name(fields: Sequence[str], has_numbers: bool = False) -> bool:
    """Check whether a row can name columns: each another name, and not numbers alone."""
    looks = [look_of(field) for field in fields]
    if len(set(fields)) < len(fields) or "text" not in looks:
        return False
    return has_numbers or not {"integer", "number", "time"} & set(looks)


def _is_index_of_numbers(part: Part) -> bool:
    """Recognise what pandas writes for a frame without names: no name above the row numbers, then 0, 1, 2."""
    first, others = part.first, part.rows[1:]
    numbers = [str(number) for number in range(len(first) - 1)]
    return (
        len(first) > 1
        and first == ["", *numbers]
        and bool(others)
        and all(row[0].strip() == str(number) for number, row in enumerate(others))
    )


def _recurs(first: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Check whether a word of the first row is in the same column of another row."""
    return any(
        field and any(column < len(row) and row[column].strip() == field for row in others)
        for column, field in enumerate(first)
    )


def _is_row(parts: Sequence[Part]) -> bool:
    """Check whether the first row has values: words of its columns again, or words that are written as all others."""
    first = parts[0].first
    others = [row for number, part in enumerate(parts) for row in part.rows[number == 0 :]]
    are_values = {field for field in first if field} <= {field.strip() for row in others for field in row}
    columns = [[row[column].strip() for row in others if column < len(row)] for column in range(len(first))]
    if are_values or _recurs(first, others) or any(map(_is_key, first, columns)):
        return True
    return not _counts_up(first) and any(map(_is_written_as, first, columns))


def _is_key(field: str, values: Sequence[str]) -> bool:
    """Check whether a word is as long as all values of its column, and longer than names of columns are."""
    return len(field) >= _SHORTEST_KEY and bool(values) and all(len(value) == len(field) for value in values)


def _is_written_as(field: str, values: Sequence[str]) -> bool:
    """Check whether a word has digits where all values of its column have some: user-7 as user-12."""
    template = _DIGITS.sub("0", field)
    return template != field and bool(values) and all(_DIGITS.sub("0", value) == template for value in values)


def _counts_up(fields: Sequence[str]) -> bool:
    """Check whether a row numbers its columns, as user1,user2 does."""
    numbers = [int("".join(_DIGITS.findall(field)) or -1) for field in fields]
    return len({_DIGITS.sub("0", field) for field in fields}) == 1 and numbers in (
        list(range(start, start + len(fields))) for start in (0, 1)
    )


def _why_not(part: Part) -> str:
    shown = _shown(part)
    looks = {look_of(field) for field in part.first}
    if "text" not in looks:
        return f"the first row, {shown}, has no words"
    return f"the first row, {shown}, is like the others; if it names the columns, add --header"


def _undecided(part: Part, why: str) -> SourceError:
    return SourceError(
        f"{part.place}: {_shown(part)} may be a header or a row: it {why}; add --header if it names the columns, "
        "or --no-header if it is a row"
    )


def _shown(part: Part) -> str:
    return shorten(",".join(part.first))
