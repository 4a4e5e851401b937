"""Decisions about a source that were made before it is read, as people see them in a table."""

from __future__ import annotations

from typing import NamedTuple


class Decision(NamedTuple):
    """One line of the table.

    subject: a file, a column, or a property such as the delimiter.
    role: what it was taken for.
    why: the evidence, or the option that set it.
    """

    subject: str
    role: str
    why: str


def listed(names: list[str], most: int = 8) -> str:
    """Join names for a line, at most `most` of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
