"""How results name the page that they wrote."""

from __future__ import annotations

from pathlib import Path

from diskhop.budget import format_bytes
from diskhop.display import Row


def page_row(path: Path) -> Row:
    """Return the line of a page that was written."""
    return "written", f"{path}, {format_bytes(path.stat().st_size)}: open it in a browser"
