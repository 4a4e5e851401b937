"""Names of texts of edges."""

from __future__ import annotations

from pathlib import Path

from diskhop.importing.text.packing import inner_name, plain_name

SUFFIXES = (".csv", ".tsv", ".txt", ".edges", ".edgelist", ".el", ".mtx", ".net", ".paj", ".gr", ".col", ".dimacs")
# KONECT's names of edges.
_PREFIX = "out."


def text_suffix(path: Path) -> str:
    """Return the suffix of a text's name, without that of its compression."""
    return Path(inner_name(path)).suffix


def has_suffix(path: Path) -> bool:
    """Check whether a name is one of a text of edges."""
    return text_suffix(path).lower() in SUFFIXES or path.name.startswith(_PREFIX)


def text_stem(path: Path) -> str:
    """Return the name of a text or folder without its suffixes."""
    return path.name if path.is_dir() else plain_name(path.name).removesuffix(text_suffix(path))
