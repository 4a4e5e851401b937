"""Layout of a text of edges: its files, delimiter, comments, header and columns.

A *row* is a line with an edge; blank lines and *comments*, lines that begin with a mark such as #, are not rows. The
layout comes from the options and the first rows of all files. Every later row must fit it; an error names the line of
the first that does not. Between columns several spaces are one, and delimiters after the last column are nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from diskhop.errors import ConfigError, SourceError
from diskhop.importing.balance import NO_LINES, LineCounts
from diskhop.importing.evidence.columns import EndColumns, few_columns, find_end_columns
from diskhop.importing.evidence.decisions import Decision, listed
from diskhop.importing.evidence.delimiter import NAMES, find_delimiter
from diskhop.importing.evidence.folder import FolderFiles, import_alone, list_folder
from diskhop.importing.evidence.header import Header, Part, find_header, with_row_names
from diskhop.importing.evidence.names import Ends, find_ends
from diskhop.importing.evidence.rows import is_integer, is_number, is_whole, num_filled, split_row
from diskhop.importing.options import IdKind, ImportOptions
from diskhop.importing.shorten import shorten
from diskhop.importing.source_file import SourceFile, source_errors
from diskhop.importing.text.dialects import Dialect, find_dialect
from diskhop.importing.text.packing import packing_of, plain_name
from diskhop.importing.text.sample import COMMENTS, TextSample, read_samples
from diskhop.importing.text.sizes import Sizes, find_sizes
from diskhop.importing.text.suffixes import SUFFIXES, has_suffix, text_suffix


@dataclass(frozen=True, slots=True)
class TextFile(SourceFile):
    """A file of edges.

    packing: how it is compressed, if it is.
    rows_begin: offset, in the unpacked text, of the first row after the header.
    header: text of the header line, if there is one.
    head: lines before the first row, the header among them.
    """

    packing: str | None
    rows_begin: int
    header: str | None
    head: LineCounts = NO_LINES


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Layout of a row.

    delimiter: one character.
    num_columns: columns of every row.
    columns: positions, from 0, of source and destination.
    ids: integer or string.
    comments: bytes that make a line a comment when it begins with one.
    are_floats: whether ids are whole numbers that may be written as floats.
    are_marks_given: whether the user named the marks of comments.
    are_columns_given: whether the user named the columns.
    is_uneven: whether rows may have several spaces between columns, or delimiters at the end; where they do and it is
        False, they are read in a second, slower attempt.
    """

    delimiter: str
    num_columns: int
    columns: tuple[int, int]
    ids: IdKind
    comments: bytes = COMMENTS
    are_floats: bool = False
    are_marks_given: bool = False
    are_columns_given: bool = False
    is_uneven: bool = True

    def split(self, text: str) -> list[str]:
        """Split a row into fields. Raises ValueError with the rule that it breaks."""
        are_aligned = self.delimiter == " " and self.ids == "integer"
        return split_row(text.replace("\t", " ") if are_aligned else text, self.delimiter)

    def fit(self, fields: list[str]) -> list[str]:
        """Leave out empty fields after the last column, which delimiters at the end of a line make."""
        return fields[: max(self.num_columns, num_filled(fields))]

    def hides_row(self, line: str) -> bool:
        """Check whether a comment may be a row: a name that begins with the mark, and as many columns as rows have."""
        if self.are_marks_given or self.ids == "integer" or line[1:2] in ("", " ", "\t", line[:1]):
            return False
        try:
            return len(self.fit(self.split(line.rstrip("\r\n")))) == self.num_columns
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class TextSource:
    """Texts that belong together.

    files: those with rows.
    layout: of their rows.
    decisions: what was decided, for people.
    head: lines of files without rows.
    passed_over: files of the folder that are not imported.
    dialect: the published format of the text, if it has one.
    sizes: the first row of a text without dialect, if it may state numbers of nodes and edges.
    """

    files: list[TextFile]
    layout: RowLayout
    decisions: list[Decision]
    head: LineCounts
    passed_over: list[str]
    dialect: Dialect | None = None
    sizes: Sizes | None = None


def is_edge_text(source: Path) -> bool:
    """Check, by name, whether a source is a text of edges or a folder with some."""
    return bool(list_texts(source).edges) if source.is_dir() else has_suffix(source)


def list_texts(folder: Path) -> FolderFiles:
    """List the texts of a folder."""
    with source_errors(str(folder)):
        return list_folder(folder, has_suffix, plain_name)


def find_texts(source: Path, options: ImportOptions) -> TextSource:
    """Find the files of a source that have rows, and the layout of their rows.

    Raises SourceError, with file and line if known, for a source that is no text of edges.
    """
    decisions: list[Decision] = []
    passed_over: list[str] = []
    paths = [source]
    if source.is_dir():
        found = list_texts(source)
        paths, passed_over = list(found.edges), [name for name, _ in found.others]
        decisions += found.decisions(source)
    if not paths:
        raise SourceError(
            f"{source}: has no files named {', '.join(f'*{each}' for each in SUFFIXES)} (plain or compressed); "
            "give a text with one edge per line"
        )
    dialect = find_dialect(paths, options)
    marks = marks_of(options)
    if dialect is not None:
        decisions += dialect.decisions(options)
        marks = dialect.comments.encode() if marks is None else marks
    used = options if dialect is None else dialect.applied(options)
    samples = read_samples(paths, marks, used.skip_lines or 0)
    sizes = find_sizes(samples, options) if dialect is None else None
    texts = _LayoutFinder(source, samples, used).find(decisions, passed_over)
    if dialect is None:
        return replace(texts, sizes=sizes if texts.files[0].header is None else None)
    return replace(texts, dialect=dialect, decisions=dialect.restated(texts.decisions, options))


def marks_of(options: ImportOptions) -> bytes | None:
    """Return the marks of comments that options name; None: they name none."""
    return None if options.comments is None else b"" if options.comments == "none" else options.comments.encode()


class _LayoutFinder:
    """Finds the layout of texts from samples of all files."""

    def __init__(self, source: Path, samples: Sequence[TextSample], options: ImportOptions) -> None:
        self._source = source
        self._samples = [sample for sample in samples if sample.rows]
        self._options = options
        self._without_rows = sum((sample.head for sample in samples if not sample.rows), LineCounts())
        if not self._samples:
            raise self._no_edges()
        self._comments = self._samples[0].comments

    def find(self, decisions: list[Decision], passed_over: list[str]) -> TextSource:
        """Find files and layout."""
        first = self._samples[0]
        texts = [row.text for row in first.rows]
        delimiter, why = self._options.delimiter or "", "--delimiter"
        if not delimiter:
            delimiter, why = find_delimiter(texts, text_suffix(first.path), first.rows[0].place(first.path))
        decisions.append(Decision("delimiter", NAMES.get(delimiter, delimiter), why))
        named = self._options.columns or ()
        parts = [with_row_names(self._part(sample, delimiter), named) for sample in self._samples]
        header = find_header(parts, self._options.header, named)
        samples = [
            (sample, part, has_header)
            for sample, part, has_header in zip(self._samples, parts, header.parts, strict=True)
            if len(sample.rows) > has_header  # other parts are empty, which distributed jobs leave behind
        ]
        if not samples:
            row = shorten(self._samples[0].rows[0].text)
            raise SourceError(
                f"{self._source}: has no edges below the header {row}; add edges, or --no-header if that is an edge"
            )
        sample, part, has_header = samples[0]
        names = next((each.first for _, each, has in samples if has), None)
        decisions += self._describe(header, names)
        rows = [row for _, each, has in samples for row in each.rows[has:]]
        ends = self._find_ends(names, rows, sample)
        layout = self._layout(delimiter, ends, [*([names] if names else []), *rows], part.rows[has_header])
        self._require_no_hidden_rows(layout, [each for each, _, _ in samples])
        require_same_header([(each.path, found.place, found.first) for each, found, has in samples if has])
        decisions += self._describe_columns(layout, ends, names)
        dropped = [each for each, has in zip(self._samples, header.parts, strict=True) if len(each.rows) <= has]
        head = self._without_rows + sum((_head(each, True) for each in dropped), LineCounts())
        return TextSource([text_file(each, has) for each, _, has in samples], layout, decisions, head, passed_over)

    def _part(self, sample: TextSample, delimiter: str) -> Part:
        rows = []
        for number, row in enumerate(sample.rows):
            try:
                fields = split_row(_aligned(row.text, delimiter), delimiter)
            except ValueError as rule:
                if number < 2:
                    raise SourceError(f"{row.place(sample.path)}: {rule}") from None
                break  # parsing names the line
            rows.append(fields)
        return Part(sample.rows[0].place(sample.path), rows)

    def _find_ends(self, names: Sequence[str] | None, rows: Sequence[Sequence[str]], sample: TextSample) -> EndColumns:
        place = sample.rows[0].place(sample.path)
        count = _count_columns([*([names] if names else []), *rows])
        if self._options.columns is None:
            filled = [each for each in range(count) if any(each < len(row) and row[each].strip() for row in rows)]
            if count < 2:
                raise SourceError(f"{place}: {few_columns(len(filled), sample.rows[-1].text)}")
            return find_end_columns(names, filled, place, "--columns", by_place=False)
        if len(self._options.columns) != 2:
            raise ConfigError(
                f"--columns {','.join(self._options.columns)} must name two columns of edges, source and destination, "
                "as --columns 1,2; triples need --format triples"
            )
        found = [find_column(column, names or [], count) for column in self._options.columns]
        for column, each in zip(self._options.columns, found, strict=True):
            if each is None:
                known = f"1 to {count}" + (f" and {', '.join(names)}" if names else "")
                raise SourceError(f"{place}: has no column '{column}'; --columns can name {known}")
        if found[0] == found[1]:
            raise ConfigError(
                f"--columns {','.join(self._options.columns)} must name two columns, source and destination, as "
                "--columns 1,2"
            )
        return EndColumns(Ends(*(each or 0 for each in found)), "--columns")

    def _layout(
        self, delimiter: str, ends: EndColumns, rows: Sequence[Sequence[str]], first: Sequence[str]
    ) -> RowLayout:
        num_columns = max(1 + max(ends.ends), _count_columns(rows))
        if self._options.columns is not None and len(set(map(len, rows))) == 1:
            num_columns = len(rows[0])
        ids = self._options.ids
        found = [first[end] for end in ends.ends if end < len(first)]
        if ids is None:
            ids = "integer" if all(map(is_whole, found)) else "string"
        are_floats = ids == "integer" and any(is_whole(each) and not is_integer(each) for each in found)
        return RowLayout(
            delimiter,
            num_columns,
            (ends.ends.source, ends.ends.destination),
            ids,
            self._comments,
            are_floats,
            self._options.comments is not None,
            self._options.columns is not None,
            any(_is_uneven(row.text, delimiter) for sample in self._samples for row in sample.rows),
        )

    def _require_no_hidden_rows(self, layout: RowLayout, samples: Sequence[TextSample]) -> None:
        for sample in samples:
            for row in sample.noted:
                if layout.hides_row(row.text):
                    raise hidden_row(row.place(sample.path), row.text)

    def _describe(self, header: Header, names: Sequence[str] | None) -> list[Decision]:
        shown = "none" if names is None else shorten(",".join(names))
        found = [Decision("header", shown, header.why)]
        if names is not None and not all(header.parts):
            found[0] = Decision("header", shown, f"{header.why}, in {sum(header.parts)} of {len(header.parts)} files")
        num_comments = sum(sample.head.comments + len(sample.noted) for sample in self._samples)
        if num_comments or self._options.comments is not None or self._comments != COMMENTS:
            marks = " ".join(self._comments.decode()) or "none"
            why = "--comments" if self._options.comments is not None else "usual"
            if num_comments and self._options.comments is None:
                noted = next(sample for sample in self._samples if sample.head.comments or sample.noted)
                why = f"lines begin so, as {shorten(noted.first_comment)}; if they are rows, add --comments none"
            found.append(Decision("comments", marks, why))
        return found

    def _describe_columns(self, layout: RowLayout, ends: EndColumns, names: Sequence[str] | None) -> list[Decision]:
        found = []
        for role, column in zip(("source", "destination"), layout.columns, strict=True):
            found.append(Decision(_column(column, names), role, ends.why))
        others = [_column(each, names) for each in range(layout.num_columns) if each not in layout.columns]
        if others:
            why = (
                "a text has edges alone; --format tables takes weights and times" if names else "a text has edges alone"
            )
            found.append(Decision(listed(others), "not imported", why))
        why = "--ids" if self._options.ids else "as in the first row"
        if layout.are_floats:
            why += ", written as floats"
        return [*found, Decision("ids", "whole numbers" if layout.ids == "integer" else "names", why)]

    def _no_edges(self) -> SourceError:
        return SourceError(f"{self._source}: has no edges; give a text with one edge per line")


def find_column(column: str, names: Sequence[str], count: int) -> int | None:
    """Find a column that an option names: by header, else by number from 1."""
    if column in names:
        return list(names).index(column)
    numbers = [str(number) for number in range(1, count + 1)]
    return numbers.index(column) if column in numbers else None


def require_same_header(headers: Sequence[tuple[Path, str, list[str]]]) -> None:
    """Raise SourceError unless headers name the same columns, or ends at the same places.

    headers: file, line and names of each.
    """
    for path, place, names in headers[1:]:
        first_path, _, first = headers[0]
        ends = find_ends(names)
        if names != first and (not ends or ends != find_ends(first) or len(names) != len(first)):
            raise SourceError(f"{place}: must have the same header as {first_path}; {import_alone([path])}")


def hidden_row(place: str, line: str) -> SourceError:
    """Return the error for a line that may be a comment or a row."""
    return SourceError(
        f"{place}: {shorten(line.rstrip())} may be a comment or a row of names; add --comments none if it is a row, or "
        f"--comments {shlex.quote(line[0])} if it is a comment"
    )


def columns_rule(num_columns: int, line: str) -> str:
    """Explain the error of a row that has more or fewer columns than source and destination."""
    if num_columns < 2:
        return few_columns(num_columns, line)
    return (
        f"a row must have two columns, source and destination, got {num_columns}; "
        "name the two with ids, as --columns 1,2"
    )


def _column(place: int, names: Sequence[str] | None) -> str:
    return f"column {place + 1}" if names is None or place >= len(names) else f"column {names[place] or place + 1}"


def _is_uneven(text: str, delimiter: str) -> bool:
    """Check whether a row has several spaces between columns, or a delimiter at an end."""
    return text.endswith(delimiter) or (delimiter == " " and (text.startswith(" ") or "  " in text or "\t" in text))


def _count_columns(rows: Sequence[Sequence[str]]) -> int:
    """Count columns: those of the first row, without those that no row fills."""
    return min(len(rows[0]), max(num_filled(row) for row in rows))


def _aligned(text: str, delimiter: str) -> str:
    """Tabs among spaces align columns of numbers."""
    is_numbers = delimiter == " " and all(is_number(field) for field in text.split())
    return text.replace("\t", " ") if is_numbers else text


def _head(sample: TextSample, is_header: bool) -> LineCounts:
    return sample.head + LineCounts(lines=int(is_header), header=int(is_header))


def text_file(sample: TextSample, has_header: bool) -> TextFile:
    """Describe a file whose sample was read."""
    status = sample.path.stat()
    header = sample.rows[0].text if has_header else None
    begin, head = sample.rows[0].offset, sample.head
    if has_header:  # blank lines and comments after the header are counted with the rows
        begin = sample.rows[0].end
        head = _head(sample, True)
    return TextFile(sample.path, status.st_size, status.st_mtime_ns, packing_of(sample.path), begin, header, head)
