"""Texts of N-Triples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.imports import ERRORS, import_source
from tests.fuzz.target import Target
from tests.unit.test_import_ntriples import TEXT


def read(content: bytes, folder: Path) -> None:
    source = folder / "graph.nt"
    source.write_bytes(content)
    import_source(source, folder / "graph", "ntriples")


def seeds(folder: Path) -> Sequence[bytes]:
    return [TEXT.encode(), b"<a:a> <a:p> <a:b> .\n_:x <a:p> <a:a> .\n"]


TARGET = Target(
    name="ntriples",
    read=read,
    errors=ERRORS,
    seeds=seeds,
    words=(
        rb"\uD800",
        rb"\U00110000",
        rb"\u0000",
        b"^^<http://www.w3.org/2001/XMLSchema#double>",
        b"_:b",
        b'"1e400"',
        b"@en",
    ),
)
