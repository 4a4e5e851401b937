"""Tables of nodes and edges in CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.imports import ERRORS, import_source
from tests.fuzz.target import Target


def read(content: bytes, folder: Path) -> None:
    source = folder / "tables"
    source.mkdir()
    nodes, _, edges = content.partition(b"\0\0")
    (source / "nodes.csv").write_bytes(nodes)
    (source / "edges.csv").write_bytes(edges)
    import_source(source, folder / "graph", "tables")


def seeds(folder: Path) -> Sequence[bytes]:
    nodes = b"id,x1,x2,label,split\n0,1.5,2,a,train\n1,0,-1,b,valid\n2,3,4,a,test\n"
    edges = b"source,target,weight\n0,1,0.5\n1,2,1\n2,0,2\n"
    named = nodes.replace(b"\n0", b"\nana").replace(b"\n1", b"\nben").replace(b"\n2", b"\ncarl")
    return [nodes + b"\0\0" + edges, named + b"\0\0source,target\nana,ben\ncarl,ana\n"]


TARGET = Target(
    name="table_text",
    read=read,
    errors=ERRORS,
    seeds=seeds,
    words=(b"label", b"train", b"id", b'"', b"1e400", b"nan", b"inf"),
)
