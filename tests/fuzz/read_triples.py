"""Texts of triples: a head, a relation and a tail, by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.imports import ERRORS, import_source
from tests.fuzz.target import Target


def read(content: bytes, folder: Path) -> None:
    source = folder / "triples"
    source.mkdir()
    train, _, valid = content.partition(b"\0\0")
    (source / "train.txt").write_bytes(train)
    if valid:
        (source / "valid.txt").write_bytes(valid)
    import_source(source, folder / "graph", "triples")


def seeds(folder: Path) -> Sequence[bytes]:
    rows = b"ana\tknows\tben\nben\tknows\tana\nben\tlikes\tcake\n"
    return [rows, rows + b"\0\0ana\tlikes\tcake\n", rows.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + rows]


TARGET = Target(name="triples", read=read, errors=ERRORS, seeds=seeds, words=(b"\tr\t", b'"a', b"\t\t"))
