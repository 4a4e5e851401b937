"""Rows of triples and of dictionaries: their columns, and what every row must be.

A row of triples has head, relation and tail. A row of a *dictionary* has an id and a name. There are no comments: any
text between delimiters is a name. Empty lines are skipped. Columns that are not read are *spare*.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from diskhop.errors import SourceError
from diskhop.importing.shorten import shorten
from diskhop.importing.source_file import changed_error
from diskhop.importing.text.rows import Slice
from diskhop.importing.text.streams import at_line, decode_line

TAB, BLANK, COMMA = "\t", " ", ","
ENTITIES, RELATIONS = "entities", "relations"
NAME, NUMBER = "VARCHAR", "BIGINT"
TRIPLE = ("head", "relation", "tail")
# Three names fit on the longest line, and an id of this many digits is within a dataset's limit.
_MOST_NAME_BYTES = 1 << 18
_MOST_DIGITS = 14
# Characters that end a name, as in a class of a regular expression. Between commas, quotes would be part of it.
_ENDS_NAME = {TAB: rb"\t\n\r", BLANK: rb" \t\n\r", COMMA: rb',"\n\r'}
_BETWEEN = {TAB: "tabs", BLANK: "spaces", COMMA: "commas"}
_BLANKS = re.compile(rb"[ \t]+")
_OUTER_BLANKS = re.compile(rb"^ | $", re.M)
_EMPTY_LINES = re.compile(rb"^\n", re.M)
_CHECKED_BYTES = 1 << 20


@dataclass(frozen=True)
class RowKind:
    """Kind of row.

    columns: NAME or NUMBER by column, in the order of the file. A column that is not in `taken` is spare.
    taken: the columns that are read.
    delimiter: TAB, BLANK (one or more spaces or tabs) or COMMA.
    """

    columns: Mapping[str, str]
    taken: tuple[str, ...]
    delimiter: str = TAB

    def rows_of(self, piece: Slice) -> bytes:
        """Return the rows of a slice, each with its LF. Raises SourceError, with file and line, for a malformed row."""
        offset, lines = piece.read()
        content = lines.replace(b"\r\n", b"\n") if b"\r" in lines else lines
        rest = self._row.sub(b"", content)
        if self.delimiter == BLANK and rest.strip(b"\n"):
            content = _OUTER_BLANKS.sub(b"", _BLANKS.sub(b" ", content))
            rest = self._row.sub(b"", content)
        if rest.strip(b"\n") or not _is_utf8(content):
            raise self._fault(piece, offset, lines)
        return _EMPTY_LINES.sub(b"", content) if rest else content

    def find_row(self, piece: Slice, number: int) -> tuple[str, dict[str, str]]:
        """Find a row of a slice by its number from 0: its place, and its fields by column."""
        offset, lines = piece.read()
        for line_number, line in enumerate(io.BytesIO(lines), piece.line_at(offset)):
            if line.strip(b" \t\r\n" if self.delimiter == BLANK else b"\r\n"):
                if number == 0:
                    fields = self.split(line.decode().rstrip("\r\n"))
                    return at_line(piece.shown, line_number), dict(zip(self.columns, fields, strict=True))
                number -= 1
        raise changed_error(piece.shown)

    def split(self, text: str) -> list[str]:
        """Split a line into fields."""
        return split_fields(text, self.delimiter)

    @cached_property
    def _row(self) -> re.Pattern[bytes]:
        ends = _ENDS_NAME[self.delimiter]
        fields = {
            NAME: rb"[^%s]{1,%d}+" % (ends, _MOST_NAME_BYTES),
            NUMBER: rb"[0-9]{1,%d}+" % _MOST_DIGITS,
        }
        spare = rb"[^%s]*+" % ends
        row = self.delimiter.encode().join(
            fields[kind] if name in self.taken else spare for name, kind in self.columns.items()
        )
        return re.compile(rb"^" + row + rb"\n", re.M)

    def _fault(self, piece: Slice, offset: int, lines: bytes) -> SourceError:
        for number, line in enumerate(io.BytesIO(lines), piece.line_at(offset)):
            place = at_line(piece.shown, number)
            try:
                rule = self._broken_rule(decode_line(line, place))
            except SourceError as error:
                return error
            if rule is not None:
                return SourceError(f"{place}: {rule}")
        return changed_error(piece.shown)

    def _broken_rule(self, text: str) -> str | None:
        if not (text.strip(" \t") if self.delimiter == BLANK else text):
            return None
        if "\r" in text:
            return "a line must end with LF or CR LF, got a CR within it; save the file with line feeds"
        if self.delimiter == COMMA and '"' in text:
            return "a row with commas must have no quotes; save the file with tabs between columns, without quotes"
        fields = self.split(text)
        if len(fields) != len(self.columns):
            named = ", ".join(self.taken if len(self.taken) == len(self.columns) else self.columns)
            return (
                f"a row must have {len(self.columns)} columns between {_BETWEEN[self.delimiter]}, {named}, "
                f"got {len(fields)}; fix the line"
            )
        for (name, kind), value in zip(self.columns.items(), fields, strict=True):
            rule = _broken_field(name, kind, value) if name in self.taken else None
            if rule is not None:
                return rule
        return None


def split_fields(text: str, delimiter: str) -> list[str]:
    """Split a line into fields; BLANK is any number of spaces and tabs."""
    return re.split(r"[ \t]+", text.strip(" \t")) if delimiter == BLANK else text.split(delimiter)


def _broken_field(name: str, kind: str, value: str) -> str | None:
    if not value:
        return f"the {name} is missing; add it, or remove the line"
    if kind == NAME and len(value.encode()) > _MOST_NAME_BYTES:
        return f"the {name} must be at most {_MOST_NAME_BYTES} bytes long, got {len(value.encode())}; shorten it"
    if kind == NUMBER and (not value.isascii() or not value.isdecimal()):
        return f"the {name} must be a whole number, got {shorten(value)}; correct it"
    if kind == NUMBER and len(value) > _MOST_DIGITS:
        return f"the {name} must be an id of at most {_MOST_DIGITS} digits, got {shorten(value)}; correct it"
    return None


def _is_utf8(content: bytes) -> bool:
    if content.isascii():
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(content)
    try:
        for start in range(0, len(content), _CHECKED_BYTES):
            decoder.decode(view[start : start + _CHECKED_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
