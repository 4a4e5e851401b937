"""manifest.json of a dataset, with the checksum that its content calls for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from diskhop.dataset.manifest_file import expected_files, parse_manifest
from diskhop.errors import FormatError
from diskhop.io.checksums import digest_bytes
from tests.fuzz.forge import parse
from tests.fuzz.target import Target

_GOLDEN = Path(__file__).parents[1] / "golden"


def forged(content: bytes) -> bytes:
    document = parse(content)
    if not isinstance(document, dict):
        return content
    document.pop("checksum", None)

    def encode() -> bytes:
        return (json.dumps(document, sort_keys=True, indent=1, allow_nan=False) + "\n").encode("ascii")

    try:
        document["checksum"] = f"{digest_bytes(encode()):016x}"
        return encode()
    except (ValueError, RecursionError):
        return content


def read(content: bytes, folder: Path) -> None:
    try:
        parse_manifest(content, "manifest.json")
    except FormatError:
        manifest = parse_manifest(forged(content), "manifest.json")
        expected_files(manifest)


def seeds(folder: Path) -> Sequence[bytes]:
    return [(_GOLDEN / name / "manifest.json").read_bytes() for name in ("plain", "typed")]


TARGET = Target(
    name="manifest",
    read=read,
    errors=(FormatError,),
    seeds=seeds,
    words=(b'"dtype": "int8"', b'"num_tasks"', b'"attributes"', b'"generation": 2', b"../", b'"extra": {'),
)
