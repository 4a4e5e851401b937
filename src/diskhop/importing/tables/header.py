"""Which rows a text as a table has: its delimiter, header, names of columns, and where its rows begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diskhop.errors import SourceError
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.evidence.delimiter import NAMES, find_delimiter
from diskhop.importing.evidence.header import Part, find_header, with_row_names
from diskhop.importing.evidence.rows import num_filled, split_row
from diskhop.importing.options import ImportOptions
from diskhop.importing.text.layout import RowLayout, TextFile, marks_of, require_same_header, text_file
from diskhop.importing.text.sample import COMMENTS, TextSample, read_samples
from diskhop.importing.text.suffixes import text_suffix


@dataclass(frozen=True, slots=True)
class TextRows:
    """Rows of text as a table.

    files: those with rows, or a header alone.
    names: of the columns; numbers from 1 if there is no header.
    has_names: whether there is a header.
    place: file and line of the first row, for errors.
    layout: of the rows.
    decisions: what was decided, for people.
    """

    files: list[TextFile]
    names: list[str]
    has_names: bool
    place: str
    layout: RowLayout
    decisions: list[Decision]


def find_rows(shown: Path, what: str, paths: Sequence[Path], options: ImportOptions) -> TextRows:
    """Find the rows of text as a table. Raises SourceError, with file and line, for text that cannot be a table."""
    read = read_samples(list(paths), marks_of(options), options.skip_lines or 0)
    samples = [sample for sample in read if sample.rows]
    if not samples:
        raise SourceError(f"{shown}: has no rows; add a header and one row per {what[:-1]}")
    delimiter, why = options.delimiter or "", "--delimiter"
    if not delimiter:
        first = samples[0]
        texts = [row.text for row in first.rows]
        delimiter, why = find_delimiter(texts, text_suffix(first.path), first.rows[0].place(first.path))
    is_nodes = what == "nodes"
    named = _named(options, is_nodes)
    parts = [with_row_names(_part(sample, delimiter), named, is_nodes) for sample in samples]
    header = find_header(parts, options.header, named, is_nodes)
    headed = [(sample, part) for sample, part, has in zip(samples, parts, header.parts, strict=True) if has]
    require_same_header([(sample.path, part.place, part.first) for sample, part in headed])
    names = headed[0][1].first if headed else []
    if not headed:
        names = [str(number) for number in range(1, 1 + max(len(row) for part in parts for row in part.rows[:1]))]
    names = [name or f"Unnamed: {place}" for place, name in enumerate(names)]
    layout = RowLayout(
        delimiter, len(names), (0, 0), "string", samples[0].comments, are_marks_given=options.comments is not None
    )
    decisions = [
        Decision(f"delimiter of {what}", NAMES.get(delimiter, delimiter), why),
        Decision(f"header of {what}", ",".join(names[:4]) if headed else "none", header.why),
    ]
    if options.comments is not None or layout.comments != COMMENTS or any(sample.head.comments for sample in samples):
        marks = " ".join(layout.comments.decode()) or "none"
        decisions.append(Decision(f"comments of {what}", marks, "--comments" if options.comments else "lines begin so"))
    files = [text_file(sample, has) for sample, has in zip(samples, header.parts, strict=True)]
    return TextRows(files, names, bool(headed), parts[0].place, layout, decisions)


def _named(options: ImportOptions, is_nodes: bool) -> list[str]:
    """List the names of columns that options use."""
    given = (
        [options.id, *(options.label or ()), options.split, *(options.features or ())]
        if is_nodes
        else [options.weight, options.time, *(options.edge_columns or ())]
    )
    return [name for name in given if name is not None and not name.isdecimal()]


def _part(sample: TextSample, delimiter: str) -> Part:
    rows: list[list[str]] = []
    for row in sample.rows:
        try:
            rows.append(split_row(row.text, delimiter))
        except ValueError as rule:
            if not rows:
                raise SourceError(f"{row.place(sample.path)}: {rule}") from None
            break  # a quoted field may span lines; DuckDB names other faults
    if num_filled(rows[0]) == 0:
        raise SourceError(f"{sample.rows[0].place(sample.path)}: must have columns; fix the line")
    return Part(sample.rows[0].place(sample.path), rows)
