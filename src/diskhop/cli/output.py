"""Output of commands: one JSON document, or lines for people. Results go to stdout, all else to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table as TextTable
from rich.text import Text

from diskhop.budget import Budget, format_bytes

# Of the ranks that torchrun has started, the first one alone prints.
_IS_QUIET = "WORLD_SIZE" in os.environ and os.environ.get("RANK", "0") != "0"
stdout = Console(soft_wrap=True, highlight=False, quiet=_IS_QUIET)
stderr = Console(stderr=True, soft_wrap=True, highlight=False, quiet=_IS_QUIET)
# Facts whose parts are called by names of types, attributes or files.
_OF_NAMES = ("nodes", "edges", "attributes", "files")


def print_json(document: dict[str, Any]) -> None:
    """Print the one JSON document of a command."""
    if not _IS_QUIET:
        sys.stdout.write(json.dumps(document, indent=1) + "\n")


def print_pairs(rows: list[tuple[str, str]]) -> None:
    """Print names and values, one line each. A command is never wrapped, so that it can be pasted whole."""
    width = max((len(name) for name, _ in rows), default=0)
    for is_command, group in groupby(rows, key=lambda row: row[1].startswith("diskhop ")):
        if is_command:
            for name, text in group:
                stdout.print(Text(f"{name:<{width}}  {text}"))
            continue
        table = TextTable(show_header=False, box=None, pad_edge=False)
        table.add_column(min_width=width)
        table.add_column()
        for name, text in group:
            table.add_row(Text(name), Text(text))
        stdout.print(table)


def print_table(names: list[str], rows: list[list[str]]) -> None:
    """Print rows below the names of their columns."""
    table = TextTable(box=None, pad_edge=False)
    # Wider than the terminal rather than truncated: part of a number is of no use.
    for column, name in enumerate(names):
        table.add_column(name, no_wrap=True, min_width=max([len(name), *(len(row[column]) for row in rows)]))
    for row in rows:
        table.add_row(*map(Text, row))
    stdout.print(table)


def print_description(description: dict[str, Any], as_json: bool) -> None:
    """Print nested facts, as JSON or as indented lines."""
    if as_json:
        print_json(description)
    else:
        print_pairs(list(_lines_of(description)))


def _lines_of(value: dict[str, Any], indent: str = "", *, as_they_are: bool = False) -> Iterator[tuple[str, str]]:
    """One line per fact, nested facts indented. as_they_are: keys are names that a command may be given."""
    for name, fact in value.items():
        title = indent + (name if as_they_are else name.replace("_", " "))
        if isinstance(fact, dict):
            yield title, ""
            yield from _lines_of(fact, indent + "  ", as_they_are=name in _OF_NAMES)
        elif isinstance(fact, list) and fact and isinstance(fact[0], dict):
            for number, part in enumerate(fact):
                facts = ", ".join(f"{key} {_show(item)}" for key, item in part.items())
                yield (title if len(fact) == 1 else f"{title} {number}"), facts
        else:
            is_bytes = name == "bytes" or name.endswith("_bytes")
            yield title, format_bytes(fact) if is_bytes else _show(fact)


def _show(fact: Any) -> str:
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, int):
        return f"{fact:,}"
    if isinstance(fact, float):
        return f"{fact:.3g}"
    return ", ".join(map(_show, fact)) if isinstance(fact, list) else str(fact)


def budget_of(given: dict[str, Any]) -> Budget | None:
    """Take --memory out of what a command was given, as a budget."""
    num_bytes = given.pop("memory_bytes", None)
    return None if num_bytes is None else Budget(num_bytes)
