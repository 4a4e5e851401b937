"""Values of a source as messages show them."""

from __future__ import annotations

_SHOWN_CHARACTERS = 60


def shorten(value: str) -> str:
    """Quote a value on one line, of a long one the beginning."""
    shown = value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}..."
    return "'" + shown.replace("\n", "\\n").replace("\r", "\\r") + "'"
