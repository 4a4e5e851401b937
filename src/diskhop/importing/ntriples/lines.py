"""Lines of N-Triples (RDF 1.1): subject, predicate, and a resource or a literal, in slices that become Parquet.

Resources are IRIs without their brackets, and blank nodes as they are written (`_:b0`). A literal of a numeric or
boolean datatype is a number; any other is text, of which only the presence is kept.
"""

from __future__ import annotations

import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from diskhop.errors import SourceError
from diskhop.importing.shorten import shorten
from diskhop.importing.source_file import changed_error
from diskhop.importing.text.rows import Slice
from diskhop.importing.text.streams import at_line, decode_line
from diskhop.runtime.tasks import TaskTools

# Memory per byte of a slice: its fields as bytes, as text and in Arrow.
BYTES_PER_BYTE = 24
_XSD = b"http://www.w3.org/2001/XMLSchema#"
_WHOLE = b"integer int long short byte nonNegativeInteger positiveInteger negativeInteger nonPositiveInteger"
_UNSIGNED = b"unsignedLong unsignedInt unsignedShort unsignedByte"
_NUMBERS = frozenset(
    _XSD + each for each in [*_WHOLE.split(), *_UNSIGNED.split(), b"decimal", b"double", b"float", b"gYear"]
)
_BOOLEAN = _XSD + b"boolean"
_FLAGS = {b"true": 1.0, b"1": 1.0, b"false": 0.0, b"0": 0.0}
_IRI, _BLANK = rb"<([^<>\s]*+)>", rb'(_:[^\s<>"]*[^\s<>".])'
_LITERAL = rb'"((?:[^"\\\n]|\\.)*+)"(?:\^\^<([^<>\s]*+)>|@[A-Za-z][A-Za-z0-9-]*)?'
_TRIPLE = re.compile(
    rb"^[ \t]*(?:" + _IRI + b"|" + _BLANK + rb")[ \t]*" + _IRI + rb"[ \t]*(?:" + _IRI + b"|" + _BLANK + b"|" + _LITERAL
    + rb")[ \t]*\.[ \t]*(?:#[^\n]*)?\r?\n",
    re.M,
)  # fmt: skip
_FILLED = re.compile(rb"^[ \t]*[^ \t\r\n#]", re.M)
_ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})")
_RULE = 'a line must be a subject, a predicate, an object and a full stop, as <s> <p> <o> . or <s> <p> "text" .'


@dataclass(frozen=True)
class ParseTriples:
    """Convert a slice to Parquet: row, s, p, o (null for a literal), value (null but for a number).

    first_row: less than the rows of all later slices.
    """

    name: str
    piece: Slice
    first_row: int

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task. Raises SourceError, with file and line, for a line that is no triple."""
        import pyarrow as pa  # takes half a second and 30 MB
        import pyarrow.parquet as pq

        offset, content = self.piece.read()
        fields = _TRIPLE.findall(content)
        if len(fields) != len(_FILLED.findall(content)):
            raise self._fault(offset, content)
        try:
            columns = {
                "s": [_name(iri or blank) for iri, blank, *_ in fields],
                "p": [_name(each[2]) for each in fields],
                "o": [_name(each[3] or each[4]) if each[3] or each[4] else None for each in fields],
            }
            values = [_number(each[5], each[6]) if each[6] else None for each in fields]
        except ValueError:
            raise self._fault(offset, content) from None
        arrays = {name: pa.array(texts, pa.string()) for name, texts in columns.items()}
        rows = pa.array(np.arange(self.first_row, self.first_row + len(fields)))
        pq.write_table(pa.table({"row": rows, **arrays, "value": pa.array(values, pa.float64())}), path)

    def _fault(self, offset: int, content: bytes) -> SourceError:
        """Find the first line that is no triple."""
        for number, line in enumerate(io.BytesIO(content), self.piece.line_at(offset)):
            place = at_line(self.piece.shown, number)
            try:
                text = decode_line(line, place)
            except SourceError as error:
                return error
            if not _FILLED.match(line):
                continue
            found = _TRIPLE.fullmatch(line)
            if found is None:
                return SourceError(f"{place}: {_RULE}, got {shorten(text)}; fix the line")
            try:
                for resource in (found[1] or found[2], found[3], found[4] or found[5] or b""):
                    _name(resource)
            except ValueError:
                return SourceError(
                    f"{place}: \\u and \\U must be followed by a character's number, got {shorten(text)}; fix the line"
                )
            try:
                _number(found[6], found[7]) if found[7] else None
            except ValueError:
                literal, datatype = found[6].decode(), found[7].decode()
                return SourceError(f"{place}: a literal of {datatype} must be a number, got {shorten(literal)}; fix it")
        return changed_error(self.piece.shown)


def _number(text: bytes, datatype: bytes) -> float | None:
    """Return a literal as a number; None: its datatype is none of numbers. Raises ValueError."""
    if datatype == _BOOLEAN:
        if text not in _FLAGS:
            raise ValueError
        return _FLAGS[text]
    return float(text) if datatype in _NUMBERS else None


def _name(resource: bytes) -> str:
    """Return a resource as text. Raises ValueError for bytes or an escape that are none."""
    name = resource.decode()
    if "\\" in name:
        name = _ESCAPE.sub(_character, name)
        name.encode()  # half of a pair of UTF-16 is no character
    return name


def _character(escape: re.Match[str]) -> str:
    number = int(escape[1] or escape[2], 16)
    if number > sys.maxunicode:
        raise ValueError
    return chr(number)
