"""metadata.yaml of a GraphBolt folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from diskhop.errors import SourceError
from diskhop.importing.graphbolt.metadata import METADATA_NAME, read_metadata
from tests.fuzz.target import Target
from tests.unit.test_import_graphbolt import plain, typed


def read(content: bytes, folder: Path) -> None:
    (folder / METADATA_NAME).write_bytes(content)
    metadata = read_metadata(folder)
    for edges in metadata.edges:
        assert edges.file.path.resolve().is_relative_to(folder.resolve())


def seeds(folder: Path) -> Sequence[bytes]:
    return [yaml.safe_dump(make(folder / make.__name__)).encode() for make in (plain, typed)]


TARGET = Target(
    name="graphbolt",
    read=read,
    errors=(SourceError,),
    seeds=seeds,
    words=(
        b"*a",
        b"&a ",
        b"!!python/object/apply:os.system ",
        b"!!binary ",
        b"? ",
        b": ",
        b"- ",
        b"<<: ",
        b"2001-01-01",
        b"1:1:1",
        b"0b1_",
        b"!!set ",
        b"!!int ",
        b"!!timestamp ",
        b"---\n",
        b"%YAML 9.9\n",
        b"\xef\xbf\xbe",
    ),
)
