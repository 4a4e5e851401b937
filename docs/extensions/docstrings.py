"""Docstrings of this package as reStructuredText.

They are plain text: paragraphs, lines `name: what it is` with indented continuations, single backticks for code, and
examples after `>>>`.
"""

from __future__ import annotations

import doctest
import re

_ENTRY = re.compile(r"([A-Za-z_][\w.]*(?:, [A-Za-z_][\w.]*)*): (\S.*)")


def to_rst(lines: list[str]) -> list[str]:
    """Return a docstring's lines as reStructuredText: a list of the names, and examples without prompts."""
    made: list[str] = []
    in_list = False
    for line in _without_examples(lines):
        entry = _ENTRY.match(line)
        if entry:
            names = ", ".join(f"``{each}``" for each in entry[1].split(", "))
            made += [*([] if in_list else [""]), f"* {names}: {escape(entry[2])}"]
            in_list = True
        elif in_list and line.startswith(" "):
            made.append(f"  {escape(line.strip())}")
        else:
            made += [*([""] if in_list and line else []), escape(line.strip())]
            in_list = False
    example = examples(lines)
    if example:
        made += ["", ".. code-block:: python", "", *(f"   {line}" for line in example), ""]
    return made


def examples(lines: list[str]) -> list[str]:
    """The examples of a docstring as lines of Python, with what they print as comments."""
    made: list[str] = []
    for each in doctest.DocTestParser().get_examples("\n".join(lines)):
        made += each.source.rstrip().splitlines()
        made += [f"# {line}" for line in each.want.rstrip().splitlines()]
    return made


def escape(text: str) -> str:
    """Text with its single backticks as code, and nothing else that reStructuredText would read as markup."""
    parts = re.sub(r"`+", "`", text).split("`")
    parts[::2] = [re.sub(r"([\\*_|])", r"\\\1", each) for each in parts[::2]]
    return "".join(f"``{each}``" if number % 2 else each for number, each in enumerate(parts))


def _without_examples(lines: list[str]) -> list[str]:
    """Lines without examples: those from a prompt to the next empty line."""
    kept: list[str] = []
    in_example = False
    for line in lines:
        in_example = line.lstrip().startswith(">>>") or (in_example and bool(line.strip()))
        if not in_example:
            kept.append(line)
    return kept
