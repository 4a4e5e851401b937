"""Layout of a text of edges: its files, compression, delimiter, header and columns.

A *row* is a line with an edge; blank lines and *comments*, lines that begin with a mark such as #, are not rows. The
layout comes from the options and the first two rows. Every later row must fit it; an error names the line of the first
that does not. Between columns several spaces are one, and delimiters after the last column are nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from diskhop.errors import ConfigError, SourceError
from diskhop.importing.options import IdKind, ImportOptions
from diskhop.importing.source_file import SourceFile, source_errors
from diskhop.importing.text.packing import DamageError, packing_of, plain_name
from diskhop.importing.text.streams import BOM, MOST_LINE_BYTES, at_line, damage_errors, decode_line, open_text

SUFFIXES = (".csv", ".tsv", ".txt", ".edges", ".edgelist", ".el")
# Marks of comments. A text has those of the first kind if it begins with one.
PERCENT_COMMENTS = b"%#"
COMMENTS = b"#"
INTEGER = re.compile(r"[+-]?[0-9]+")

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_DELIMITERS = ("\t", ",", ";", " ", "|")
_SUFFIX_DELIMITER = {".csv": ",", ".tsv": "\t"}
# Headers of columns of names, where no number in the second row gives the header away.
HEADERS = (
    ("source", "target"),
    ("source", "destination"),
    ("src", "dst"),
    ("from", "to"),
    ("fromnodeid", "tonodeid"),
)


@dataclass(frozen=True, slots=True)
class TextFile(SourceFile):
    """A file of edges.

    packing: how it is compressed, if it is.
    rows_begin: offset, in the unpacked text, of the first row after the header.
    header: text of the header line, if there is one.
    """

    packing: str | None
    rows_begin: int
    header: str | None


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Layout of a row.

    delimiter: one character.
    num_columns: columns of every row.
    columns: positions, from 0, of source and destination.
    ids: integer or string.
    comments: bytes that make a line a comment when it begins with one.
    """

    delimiter: str
    num_columns: int
    columns: tuple[int, int]
    ids: IdKind
    comments: bytes = COMMENTS

    def split(self, text: str) -> list[str]:
        """Split a row into fields. Raises ValueError with the rule that it breaks."""
        if "\r" in text:
            raise ValueError("a line must end with LF or CR LF, got a CR within it; save the file with line feeds")
        if self.delimiter == " ":
            text = (text.replace("\t", " ") if self.ids == "integer" else text).strip(" ")
        if '"' not in text:
            return re.split(" +", text) if self.delimiter == " " else text.split(self.delimiter)
        # Not the csv module: its limit of 131072 characters per field can only be raised for the whole process.
        field = re.compile('"([^"]*(?:""[^"]*)*)"(?![^D])|(?!")[^D]*'.replace("D", re.escape(self.delimiter)))
        fields = []
        end = -1
        while end < len(text):
            found = field.match(text, end + 1)
            if found is None:
                raise ValueError("a field that begins with a quote must end with one, on the same line; fix the line")
            quoted = found.group(1)
            fields.append(found.group() if quoted is None else quoted.replace('""', '"'))
            end = found.end()
            while self.delimiter == " " and text[end + 1 : end + 2] == " ":
                end += 1
        return fields

    def fit(self, fields: list[str]) -> list[str]:
        """Leave out empty fields after the last column, which delimiters at the end of a line make."""
        return fields[: max(self.num_columns, _num_filled(fields))]


def is_edge_text(source: Path) -> bool:
    """Check, by name, whether a source is a text of edges or a folder with some."""
    return bool(_list_parts(source)) if source.is_dir() else _has_suffix(source)


def find_texts(source: Path, options: ImportOptions) -> tuple[list[TextFile], RowLayout]:
    """Find the files of a source that have rows, and the layout of their rows.

    Raises SourceError, with file and line if known, for a source that is no text of edges.
    """
    with source_errors(str(source)):
        paths = _list_parts(source) if source.is_dir() else [source]
    if not paths:
        raise SourceError(
            f"{source}: has no files named {', '.join(f'*{each}' for each in SUFFIXES)} (plain or compressed); "
            "give a text with one edge per line"
        )
    for path in paths:
        with source_errors(str(path)):
            if not path.is_file():
                raise SourceError(f"{path}: is not a regular file; give a file of edges")
    layout: RowLayout | None = None
    files: list[TextFile] = []
    comments = max(map(find_comments, paths), key=len)
    for path in paths:
        with source_errors(str(path)):
            rows = _first_rows(path, comments)
        has_header = bool(rows) and _has_header(rows, path, layout, options)
        if len(rows) <= has_header:  # an empty part, which distributed jobs leave behind
            continue
        if layout is None:
            layout = _find_layout(rows, has_header, path, options, comments)
        header = rows[0].text if has_header else None
        if files and options.columns and header != files[0].header:
            raise SourceError(
                f"{rows[0].place(path)}: must have the same header as {files[0].path}, because --columns names "
                "columns; import files with different headers separately"
            )
        status = path.stat()
        begin = rows[has_header].offset
        files.append(TextFile(path, status.st_size, status.st_mtime_ns, packing_of(path), begin, header))
    if layout is None:
        raise SourceError(f"{source}: has no edges; give a text with one edge per line")
    return files, layout


def is_blank(line: bytes, comments: bytes) -> bool:
    """Check whether a line is blank, or a comment with one of these marks."""
    return line[:1] in comments or not line.removesuffix(b"\n").removesuffix(b"\r").strip(b" \t")


def find_comments(path: Path) -> bytes:
    """Find the marks of comments: % too, if the first line that is not blank begins with it."""
    with source_errors(str(path)), damage_errors(path), open_text(path) as stream:
        first = stream.readline(MOST_LINE_BYTES).removeprefix(BOM)
        while first and not first.strip():
            first = stream.readline(MOST_LINE_BYTES)
    return PERCENT_COMMENTS if first.startswith(b"%") else COMMENTS


def _num_filled(fields: list[str]) -> int:
    return max((number for number, field in enumerate(fields, 1) if field.strip()), default=0)


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    offset: int
    text: str

    def place(self, path: Path) -> str:
        return at_line(path, self.number)


def _first_rows(path: Path, comments: bytes) -> list[_Row]:
    """Read the first two rows, fewer in a shorter file; damage after them is found by parsing."""
    rows: list[_Row] = []
    try:
        for row in _read_rows(path, comments):
            rows.append(row)
            if len(rows) == 2:
                break
    except DamageError:
        if not rows:
            with damage_errors(path):
                raise
    return rows


def _read_rows(path: Path, comments: bytes) -> Iterator[_Row]:
    """Yield the rows of a file."""
    with open_text(path) as stream:
        offset = 0
        number = 0
        while line := stream.readline(MOST_LINE_BYTES + 1):
            number += 1
            if number == 1 and line.startswith(_UTF_16):
                raise SourceError(f"{at_line(path, 1)}: text must be UTF-8, got UTF-16; save the file as UTF-8")
            row = line.removeprefix(BOM) if number == 1 else line
            if not is_blank(row, comments):
                yield _Row(number, offset + len(line) - len(row), decode_line(line=row, place=at_line(path, number)))
            offset += len(line)


def _find_layout(rows: list[_Row], has_header: bool, path: Path, options: ImportOptions, comments: bytes) -> RowLayout:
    first = rows[0]
    delimiter = options.delimiter or _find_delimiter(first.text, path)
    num_columns = max(_num_filled(_fields(row, delimiter, path)) for row in rows)
    fields = _fields(first, delimiter, path)[:num_columns]
    columns = _find_columns(fields, has_header, first.place(path), options)
    ids = options.ids
    if ids is None:
        row = _fields(rows[has_header], delimiter, path)
        ids = "integer" if all(is_integer(row[column]) for column in columns if column < len(row)) else "string"
    return RowLayout(delimiter, len(fields), columns, ids, comments)


def _find_delimiter(text: str, path: Path) -> str:
    unquoted = re.sub(r'"[^"]*"', "q", text).strip()
    suffix = _SUFFIX_DELIMITER.get(_text_suffix(path), "")
    return next((each for each in (suffix, *_DELIMITERS) if each and each in unquoted), suffix or ",")


def _find_columns(fields: list[str], has_header: bool, place: str, options: ImportOptions) -> tuple[int, int]:
    if options.columns is None:
        if len(fields) != 2:
            raise SourceError(f"{place}: {columns_rule(len(fields))}")
        return 0, 1
    if len(options.columns) != 2:
        raise ConfigError(
            f"--columns {','.join(options.columns)} must name two columns of edges, source and destination, as "
            "--columns 1,2; triples need --format triples"
        )
    names = [field.strip() for field in fields] if has_header else []
    numbers = [str(number) for number in range(1, len(fields) + 1)]
    found = []
    for column in options.columns:
        if column in names:
            found.append(names.index(column))
        elif column in numbers:
            found.append(numbers.index(column))
        else:
            known = f"1 to {len(fields)}" + (f" and {', '.join(names)}" if names else "")
            raise SourceError(f"{place}: has no column '{column}'; --columns can name {known}")
    if found[0] == found[1]:
        raise ConfigError(
            f"--columns {','.join(options.columns)} must name two columns, source and destination, as --columns 1,2"
        )
    return found[0], found[1]


def columns_rule(num_columns: int) -> str:
    """Explain the error of a row that has more or fewer columns than source and destination."""
    if num_columns < 2:
        return "a row must have two columns, source and destination, got 1; name the separator, as --delimiter space"
    return (
        f"a row must have two columns, source and destination, got {num_columns}; "
        "name the two with ids, as --columns 1,2 (a text has no weights; tables do)"
    )


def is_integer(field: str) -> bool:
    """Check whether a field is a whole number; it may still be too large or negative for an id."""
    return INTEGER.fullmatch(field.strip()) is not None


def _has_header(rows: list[_Row], path: Path, layout: RowLayout | None, options: ImportOptions) -> bool:
    """Decide whether the first row is a header: by --header, known column names, or words followed by numbers."""
    if options.header is not None:
        return options.header
    delimiter = layout.delimiter if layout else options.delimiter or _find_delimiter(rows[0].text, path)
    fields = [_fields(row, delimiter, path) for row in rows]
    if tuple(field.strip().lower() for field in fields[0][:2]) in HEADERS:
        return True
    is_number = [any(map(is_integer, row)) for row in fields]
    return len(rows) > 1 and not is_number[0] and is_number[1] and options.ids != "string"


def _fields(row: _Row, delimiter: str, path: Path) -> list[str]:
    try:
        return RowLayout(delimiter, 0, (0, 1), "string").split(row.text)
    except ValueError as rule:
        raise SourceError(f"{row.place(path)}: {rule}") from None


def _list_parts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if _has_suffix(path) and not path.name.startswith("."))


def _has_suffix(path: Path) -> bool:
    return _text_suffix(path) in SUFFIXES


def _text_suffix(path: Path) -> str:
    return Path(plain_name(path.name)).suffix


def text_stem(path: Path) -> str:
    """Return the name of a text or folder without its suffixes."""
    return path.name if path.is_dir() else plain_name(path.name).removesuffix(_text_suffix(path))
