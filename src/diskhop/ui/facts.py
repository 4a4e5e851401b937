"""Nested facts, such as the description of a dataset, as names and texts of indented lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from diskhop.budget import format_bytes

# Facts whose parts are called by names of types, attributes or files.
_OF_NAMES = ("nodes", "edges", "attributes", "files")


def fact_rows(value: Mapping[str, Any], indent: str = "", *, as_they_are: bool = False) -> Iterator[tuple[str, str]]:
    """Yield one row per fact, nested facts indented. as_they_are: keys are names that a command may be given."""
    for name, fact in value.items():
        title = indent + (name if as_they_are else name.replace("_", " "))
        if isinstance(fact, dict):
            yield title, ""
            yield from fact_rows(fact, indent + "  ", as_they_are=name in _OF_NAMES)
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
