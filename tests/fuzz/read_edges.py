"""Texts of edges: pairs of ids or names, with headers, comments and dialects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.imports import ERRORS, import_source
from tests.fuzz.target import Target

_SEEDS = {
    b".txt": b"0 1\n1 2\n2 0\n",
    b".csv": b'source,target\nana,ben\nben,"c, d"\n',
    b".tsv": b"# a comment\n0\t5\n7\t0\n",
    b".mtx": b"%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 1\n",
    b".edgelist": b"a b {'weight': 3}\nb c {}\n",
    b".el": b"1.000e+00 2.000e+00\n2.0 3.0\n",
    b".edges": b"10;11\r\n11;12\r\n",
    b".net": b'*Vertices 3\n1 "a"\n2 "b"\n3 "c"\n*Arcs\n1 2\n',
    b".graph": b"3 2\n2 3\n1\n1\n",
}


def read(content: bytes, folder: Path) -> None:
    suffix, _, text = content.partition(b"\0")
    suffix = suffix if suffix in _SEEDS else b".txt"
    path = folder / f"edges{suffix.decode()}"
    path.write_bytes(text)
    import_source(path, folder / "graph", "edges")


def seeds(folder: Path) -> Sequence[bytes]:
    return [suffix + b"\0" + text for suffix, text in _SEEDS.items()]


TARGET = Target(
    name="edges",
    read=read,
    errors=ERRORS,
    seeds=seeds,
    words=(
        b"%%MatrixMarket matrix coordinate real general\n",
        b"9223372036854775807",
        b"1e18",
        b"source target\n",
        b"nan",
        b",,",
    ),
)
