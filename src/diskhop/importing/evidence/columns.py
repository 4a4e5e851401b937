"""Decides which columns of a table of edges are source and destination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from diskhop.errors import SourceError
from diskhop.importing.evidence.names import Ends, end_of, find_ends, id_space, is_end_name, role_of


class EndColumns(NamedTuple):
    """Positions of source and destination, and why they are taken."""

    ends: Ends
    why: str


# Separators of columns that a row of one column may have been meant to have, as --delimiter takes them.
_SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon", " ": "space", "|": "'|'", ":": "':'"}


def find_end_columns(
    names: Sequence[str] | None, filled: Sequence[int], shown: str, option: str, by_place: bool
) -> EndColumns:
    """Find the columns of source and destination by their names, else by their place.

    names: of all columns; None: there is no header. filled: positions of columns that are not empty.
    shown: file, for errors. option: flag that names the columns. by_place: whether the first two of several columns
    that no name tells are taken. Raises SourceError, which asks for the option, where nothing tells.
    """
    if len(filled) < 2 and (names is None or len(names) < 2):
        raise SourceError(f"{shown}: {few_columns(len(filled))}")
    candidates = list(filled)
    if names is not None:
        found = find_ends(names)
        if len(found) == 1:
            _require_one_space(names, found[0], shown, option)
            return EndColumns(found[0], "by name")
        if found:
            several = " or ".join(f"{names[each.source]},{names[each.destination]}" for each in found[:2])
            raise SourceError(
                f"{shown}: columns {several} may be source and destination; name the two: "
                f"{option} {names[found[0].source]},{names[found[0].destination]}"
            )
        others = {place: role_of(name) for place, name in enumerate(names) if end_of(name) is None}
        candidates = [place for place in range(len(names)) if others.get(place) is None]
        # Where a name tells one end, the other is not found by place.
        by_place = by_place and not any(is_end_name(name) for name in names)
    if len(candidates) == 2 or (by_place and len(candidates) > 2):
        return _place(names, candidates[:2], len(candidates) == (len(names or filled)))
    count = len(names) if names is not None else len(filled)
    example = ",".join(names[:2]) if names is not None else f"{filled[0] + 1},{filled[1] + 1}"
    known = f", {', '.join(names)}" if names is not None else ""
    raise SourceError(
        f"{shown}: a row must have two columns, source and destination, got {count}{known}; "
        f"name the two with ids, as {option} {example}"
    )


def few_columns(count: int, line: str = "") -> str:
    """Explain the error of a row with fewer columns than source and destination. line: its text, if it is a text's."""
    found = next((name for mark, name in _SEPARATORS.items() if sum(map(bool, line.strip().split(mark))) > 1), None)
    next_step = "add the other one" if found is None else f"name the separator, as --delimiter {found}"
    return f"a row must have two columns, source and destination, got {count}; {next_step}"


def _place(names: Sequence[str] | None, candidates: Sequence[int], are_all: bool) -> EndColumns:
    """Take two columns by place, unless the name of one says that it is the destination, or the other the source."""
    first, second = candidates
    if names is not None and (end_of(names[first]) == "destination" or end_of(names[second]) == "source"):
        return EndColumns(Ends(second, first), "one by name, the other is the only one left")
    return EndColumns(Ends(first, second), "by place: the only two" if are_all else "by place: the first two for ids")


def _require_one_space(names: Sequence[str], ends: Ends, shown: str, option: str) -> None:
    spaces = [id_space(names[end]) for end in ends]
    if spaces[0] != spaces[1]:
        raise SourceError(
            f"{shown}: edges are between nodes of two kinds, {spaces[0]} and {spaces[1]}, whose ids may be the same; "
            f"if no id is in both, add {option} {names[ends.source]},{names[ends.destination]}"
        )
