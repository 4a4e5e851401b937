"""CSV and other text as tables: which rows, columns and kinds they have, and lines that are no rows.

Lines of comments are blanked, not removed, so that the numbers of lines stay right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import numpy as np

from diskhop.errors import SourceError
from diskhop.importing.balance import LineCounts
from diskhop.importing.source_file import source_errors
from diskhop.importing.text.layout import RowLayout, TextFile, hidden_row
from diskhop.importing.text.streams import MOST_LINE_BYTES, at_line, open_text, read_text
from diskhop.importing.text.tidy import with_line_feeds, with_one_space

_BLOCK_BYTES = 1 << 20
_MOST_SAMPLE_BYTES = 4 << 20
_LINE_END, _RETURN, _QUOTE = b'\n\r"'


@dataclass(frozen=True, slots=True)
class Scan:
    """Lines of a text after its header. has_quotes: quoted fields may span lines, which count as one."""

    counts: LineCounts
    has_quotes: bool


def scan_text(path: Path, begin: int, marks: bytes) -> Scan:
    """Count the lines of a text from an offset on. marks: bytes that make a line a comment."""
    lines = comments = empty = quotes = 0
    is_begin = True
    with source_errors(str(path)), path.open("rb") as text:
        text.seek(begin)
        while block := text.read(_BLOCK_BYTES):
            characters = np.frombuffer(block, np.uint8)
            ends = characters == _LINE_END
            if quotes % 2 or b'"' in block:
                found = characters == _QUOTE
                ends &= (np.cumsum(found) + quotes) % 2 == 0
                quotes += int(np.count_nonzero(found))
            begins = np.empty(len(ends), np.bool_)
            begins[0], begins[1:] = is_begin, ends[:-1]
            firsts = characters[begins]
            lines += int(np.count_nonzero(ends))
            empty += int(np.count_nonzero((firsts == _LINE_END) | (firsts == _RETURN)))
            comments += sum(int(np.count_nonzero(firsts == mark)) for mark in marks)
            is_begin = bool(ends[-1])
    counts = LineCounts(lines=lines + (not is_begin), comments=comments, empty=empty)
    return Scan(counts, quotes > 0)


def clean_text(source: Path, file: TextFile, layout: RowLayout, destination: Path) -> None:
    """Write a text without comments, and with one space between columns. Raises SourceError for a doubtful comment."""
    number = 0
    with source_errors(str(file.path)), source.open("rb") as text, destination.open("wb") as cleaned:
        for block in _whole_lines(text):
            content = blank_comments(block, number, file, layout)
            cleaned.write(content)
            number += block.count(b"\n")


def blank_comments(content: bytes, num_before: int, file: TextFile, layout: RowLayout) -> bytes:
    """Blank comments, and all lines before the first row, in whole lines; num_before lines are before them."""
    rest = with_line_feeds(content)
    head = b""
    if num_before == 0 and file.head.lines:
        head = b"\n" * file.head.lines
        rest = rest.split(b"\n", file.head.lines)[-1]

    def blank(found: re.Match[bytes]) -> bytes:
        line = found.group().decode(errors="replace")
        if layout.hides_row(line):
            number = num_before + len(head) + rest[: found.start()].count(b"\n") + 1
            raise hidden_row(at_line(file.path, number), line)
        return b""

    if layout.comments:
        rest = re.sub(rb"^[%s][^\n]*" % re.escape(layout.comments), blank, rest, flags=re.M)
    return head + (with_one_space(rest, layout.ids == "integer") if layout.delimiter == " " else rest)


def sample_text(file: TextFile, layout: RowLayout, num_rows: int) -> bytes:
    """Read about num_rows rows, or less, from the first row on. Raises SourceError for a damaged file."""
    content = b""
    num_lines = 0
    with source_errors(str(file.path)), open_text(file.path) as text:
        while len(content) < _MOST_SAMPLE_BYTES + file.rows_begin and num_lines <= num_rows + file.head.lines:
            block = read_text(text, _BLOCK_BYTES, file.path, num_lines)
            if not block:
                break
            content += block
            num_lines += block.count(b"\n")
        else:
            content = content[: _last_end(content)]
    rows = content[file.rows_begin :]
    has_comments = any(rows.startswith(bytes([mark])) or b"\n" + bytes([mark]) in rows for mark in layout.comments)
    if has_comments or layout.delimiter == " ":
        return blank_comments(content, 0, file, layout)[file.head.lines :]
    return rows


def _last_end(content: bytes) -> int:
    """Return the offset after the last line end that no quotes are around."""
    characters = np.frombuffer(content, np.uint8)
    is_outside = np.cumsum(characters == _QUOTE) % 2 == 0
    ends = np.flatnonzero((characters == _LINE_END) & is_outside)
    return int(ends[-1]) + 1 if len(ends) else len(content)


def _whole_lines(text: BufferedReader) -> Iterator[bytes]:
    """Yield blocks of whole lines."""
    while block := text.read(_BLOCK_BYTES):
        yield block if block.endswith(b"\n") else block + text.readline(MOST_LINE_BYTES)


def require_all(shown: Path, scan: Scan, num_rows: int) -> None:
    """Raise SourceError unless the rows that were read are all that a text has."""
    # A quote within a field, or a line end between quotes, makes the count of lines that of no rows.
    if scan.counts.rows != num_rows and (scan.counts.comments or not scan.has_quotes):
        raise SourceError(
            f"{shown}: has {scan.counts.rows} lines with rows, but {num_rows} rows were read; "
            "add --comments none if no line is a comment, or remove the comments"
        )
