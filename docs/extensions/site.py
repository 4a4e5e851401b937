"""The extension of Sphinx: writes the reference's pages before a build, and reads docstrings as they are written."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from extensions.docstrings import to_rst
from extensions.reference import write_pages


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to the build; Sphinx calls it."""
    app.connect("builder-inited", _write_pages)
    app.connect("autodoc-process-docstring", _process_docstring)
    app.connect("autodoc-process-signature", _process_signature)
    return {"parallel_read_safe": True}


def _write_pages(app: Sphinx) -> None:
    write_pages(Path(app.srcdir) / "reference" / "generated")


def _process_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_rst(lines)


def _process_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Write options of a command as `**options`; the text lists them."""
    inner = inspect.unwrap(obj) if callable(obj) else obj
    if inner is obj or what != "function":
        return signature, returns
    parameters = inspect.signature(inner).parameters.values()
    own = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
    return str(inspect.Signature(own)), returns
