"""Compressed texts: what their packing is, how long their content may be, and all of it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow

from diskhop.errors import SourceError
from diskhop.importing.source_file import SourceFile, source_errors
from diskhop.importing.text.packing import inner_name
from diskhop.importing.text.streams import open_text, read_text, text_bytes
from tests.fuzz.target import Target

_TEXT = b"".join(b"%d %d\n" % (node, 7 * node % 97) for node in range(100))


def read(content: bytes, folder: Path) -> None:
    path = folder / ("edges.zip" if content[:2] == b"PK" else "edges.txt")
    path.write_bytes(content)
    inner_name(path)
    assert text_bytes(SourceFile.of(path)) >= 0
    with source_errors(str(path)), open_text(path) as text:
        while read_text(text, 1 << 16, path, 0):
            pass


def seeds(folder: Path) -> Sequence[bytes]:
    made = [_TEXT, _TEXT.replace(b"\n", b"\r"), gzip.compress(_TEXT), bz2.compress(_TEXT), lzma.compress(_TEXT)]
    made.append(bytes(pyarrow.compress(_TEXT, codec="zstd", asbytes=True)))
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", compression) as archive:
            archive.writestr("edges.txt", _TEXT)
        made.append(packed.getvalue())
    return made


TARGET = Target(
    name="packed_text",
    read=read,
    errors=(SourceError,),
    seeds=seeds,
    words=(b"\x1f\x8b\x08", b"BZh91AY&SY", b"\xfd7zXZ\0", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"ustar"),
)
