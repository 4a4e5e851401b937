"""Consoles on which names from files cannot do what control characters do: move the cursor, change direction."""

from __future__ import annotations

import threading
from typing import Any

from rich.console import Console
from rich.text import Text

from diskhop.display import visible_text

# Bytes that are not UTF-8, as Python keeps them: they are written as they are, so that a path can be pasted.
_BYTES = "".join(map(chr, range(0xDC80, 0xDD00)))


def safe_text(text: str) -> Text:
    """Return a text for a cell, with its control characters spelt out."""
    return Text(visible_text(text, _BYTES))


class SafeConsole(Console):
    """A console that spells out the control characters of texts, except for line feeds.

    Tables and texts of rich are written unchanged: safe_text() makes their cells.
    """

    def on_broken_pipe(self) -> None:
        """End the process, as Console does, but not from another thread: it would hide the result of a command."""
        if threading.current_thread() is not threading.main_thread():
            raise BrokenPipeError
        super().on_broken_pipe()

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects as Console does."""
        keep = "\n" + _BYTES
        super().print(*(visible_text(each, keep) if isinstance(each, str) else each for each in objects), **options)
