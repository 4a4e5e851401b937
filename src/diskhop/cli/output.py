"""Output of commands: one JSON document, or lines for people. Results go to stdout, all else to stderr."""

from __future__ import annotations

import json
import os
import sys
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table as TextTable
from rich.text import Text

# Of the ranks that torchrun has started, the first one alone prints.
_IS_QUIET = "WORLD_SIZE" in os.environ and os.environ.get("RANK", "0") != "0"
stdout = Console(soft_wrap=True, highlight=False, quiet=_IS_QUIET)
stderr = Console(stderr=True, soft_wrap=True, highlight=False, quiet=_IS_QUIET)


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
