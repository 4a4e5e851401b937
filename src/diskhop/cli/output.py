"""Output of commands: one JSON document, or lines for people. Results go to stdout, all else to stderr."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from itertools import groupby
from math import isfinite
from typing import Any

from rich.table import Table as TextTable

from diskhop.ui.console import SafeConsole, safe_text

# Of the ranks that torchrun has started, the first one alone prints.
_IS_QUIET = "WORLD_SIZE" in os.environ and os.environ.get("RANK", "0") != "0"
# Halves of a pair of UTF-16: Python's way to keep bytes that are not UTF-8, and of no meaning in JSON.
_HALVES = re.compile("[\ud800-\udfff]")
stdout = SafeConsole(soft_wrap=True, highlight=False, quiet=_IS_QUIET)
stderr = SafeConsole(stderr=True, soft_wrap=True, highlight=False, quiet=_IS_QUIET)


def print_json(document: dict[str, Any]) -> None:
    """Print the one JSON document of a command."""
    if not _IS_QUIET:
        sys.stdout.write(json.dumps(plain_json(document), indent=1, allow_nan=False) + "\n")


def plain_json(value: Any) -> Any:
    """Return a document that every reader of JSON accepts.

    Numbers that are not finite become null. Bytes of a file name that are not UTF-8 become texts such as \\xff.
    """
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, str):
        return _HALVES.sub(_spelt_half, value)
    if isinstance(value, Mapping):
        return {plain_json(key): plain_json(each) for key, each in value.items()}
    return [plain_json(each) for each in value] if isinstance(value, list | tuple) else value


def _spelt_half(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number - 0xDC00:02x}" if 0xDC80 <= number <= 0xDCFF else f"\\u{number:04x}"


def print_pairs(rows: list[tuple[str, str]]) -> None:
    """Print names and values, one line each. A command is never wrapped, so that it can be pasted whole."""
    width = max((len(name) for name, _ in rows), default=0)
    for is_command, group in groupby(rows, key=lambda row: row[1].startswith("diskhop ")):
        if is_command:
            for name, text in group:
                stdout.print(safe_text(f"{name:<{width}}  {text}"))
            continue
        table = TextTable(show_header=False, box=None, pad_edge=False)
        table.add_column(min_width=width)
        table.add_column(overflow="fold")
        for name, text in group:
            table.add_row(safe_text(name), safe_text(text))
        stdout.print(table)


def print_table(names: list[str], rows: list[list[str]]) -> None:
    """Print rows below the names of their columns."""
    table = TextTable(box=None, pad_edge=False)
    cells = [list(map(safe_text, row)) for row in rows]
    # Wider than the terminal rather than truncated: part of a number is of no use.
    for column, name in enumerate(names):
        table.add_column(name, no_wrap=True, min_width=max([len(name), *(len(row[column]) for row in cells)]))
    for row in cells:
        table.add_row(*row)
    stdout.print(table)
