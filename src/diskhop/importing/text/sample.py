"""The first rows of a text, from which its layout is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from diskhop.errors import SourceError
from diskhop.importing.balance import LineCounts
from diskhop.importing.source_file import source_errors
from diskhop.importing.text.packing import DamageError
from diskhop.importing.text.streams import BOM, MOST_LINE_BYTES, at_line, damage_errors, decode_line, open_text

# Marks of comments. A text has those of the first kind if it begins with one.
PERCENT_COMMENTS = b"%#"
COMMENTS = b"#"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
# Rows of all parts together, rows of a part at least, and bytes of a part, once it has two rows.
_MOST_ROWS = 2000
_MOST_ROWS_OF_PART = 100
_LEAST_ROWS_OF_PART = 4
_MOST_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class SampleRow:
    """A row of a sample.

    number: of its line, from 1.
    offset, end: where the line begins and ends in the unpacked text.
    text: the line without its end.
    """

    number: int
    offset: int
    end: int
    text: str

    def place(self, path: Path) -> str:
        """Name the row's place, for errors."""
        return at_line(path, self.number)


@dataclass(frozen=True, slots=True)
class TextSample:
    """The first rows of a file.

    path: the file.
    rows: its first rows.
    comments: marks of comments.
    noted: rows of comments among them, without those before the first row.
    head: lines before the first row.
    first_comment: the first comment, if there is one.
    """

    path: Path
    rows: tuple[SampleRow, ...]
    comments: bytes
    noted: tuple[SampleRow, ...]
    head: LineCounts
    first_comment: str


def rows_per_part(num_parts: int) -> int:
    """Return how many rows of each part are sampled."""
    return max(_LEAST_ROWS_OF_PART, min(_MOST_ROWS_OF_PART, _MOST_ROWS // max(1, num_parts)))


def read_samples(paths: list[Path], comments: bytes | None, skipped: int) -> list[TextSample]:
    """Read the first rows of all parts. comments: marks; None: as the parts begin. skipped: lines to skip in each.

    Raises SourceError, with file and line, for text that is not UTF-8.
    """
    for path in paths:
        with source_errors(str(path)):
            if not path.is_file():
                raise SourceError(f"{path}: is not a regular file; give a file of edges")
    most = rows_per_part(len(paths))
    samples = [_read_sample(path, comments, skipped, most) for path in paths]
    # Marks are those of all parts.
    marks = max((sample.comments for sample in samples), key=len)
    return [each if each.comments == marks else _read_sample(each.path, marks, skipped, most) for each in samples]


def is_blank(line: bytes, comments: bytes) -> bool:
    """Check whether a line is blank, or a comment with one of these marks."""
    return line[:1] in comments or not line.removesuffix(b"\n").removesuffix(b"\r").strip(b" \t")


def _read_sample(path: Path, comments: bytes | None, skipped: int, most: int) -> TextSample:
    rows: list[SampleRow] = []
    noted: list[SampleRow] = []
    head = LineCounts()
    first_comment = ""
    try:
        with source_errors(str(path)), open_text(path) as stream:
            for number, offset, line in _lines(stream, path):
                if len(rows) >= most or (len(rows) >= 2 and offset - rows[0].offset > _MOST_BYTES):
                    break
                if number <= skipped:
                    head += LineCounts(lines=1, skipped=1)
                    continue
                if comments is None and line.strip(b" \t\r\n"):
                    comments = PERCENT_COMMENTS if line.startswith(b"%") else COMMENTS
                if not is_blank(line, comments or b""):
                    rows.append(SampleRow(number, offset, offset + len(line), decode_line(line, at_line(path, number))))
                    continue
                is_comment = bool(line) and line[:1] in (comments or b"")
                if is_comment and not first_comment:
                    first_comment = line.decode(errors="replace").rstrip()
                if not rows:
                    head += LineCounts(lines=1, comments=int(is_comment), empty=int(not is_comment))
                elif is_comment:
                    noted.append(SampleRow(number, offset, offset + len(line), line.decode(errors="replace")))
    except DamageError:
        # Damage after the first rows is found by parsing.
        if not rows:
            with damage_errors(path):
                raise
    return TextSample(path, tuple(rows), COMMENTS if comments is None else comments, tuple(noted), head, first_comment)


def _lines(stream: BufferedReader, path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, offset and content of each line, without a byte order mark."""
    offset = 0
    number = 0
    while line := stream.readline(MOST_LINE_BYTES + 1):
        number += 1
        if number == 1 and line.startswith(_UTF_16):
            raise SourceError(f"{at_line(path, 1)}: text must be UTF-8, got UTF-16; save the file as UTF-8")
        content = line.removeprefix(BOM) if number == 1 else line
        yield number, offset + len(line) - len(content), content
        offset += len(line)
