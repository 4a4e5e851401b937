"""Starts of the texts of a knowledge graph, from which their layout is decided.

A *sample* is the first rows of a file. The first row can be a count of the rows (OpenKE) or a header with the names of
the columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from diskhop.importing.source_file import source_errors
from diskhop.importing.text.packing import DamageError
from diskhop.importing.text.streams import BOM, MOST_LINE_BYTES, damage_errors, open_text
from diskhop.importing.triples.rows import BLANK, COMMA, TAB, split_fields

PART_BYTES = 1 << 18
DICTIONARY_BYTES = 1 << 20
_WHOLE = re.compile("[0-9]+")
_MOST_COUNT_DIGITS = 14
# What columns of triples and of dictionaries are called in headers, in lower case.
_CALLED = {
    "head": {"head", "subject", "subj", "source", "src", "from", "start", "head_id", "headid", "source_id"},
    "relation": {"relation", "rel", "predicate", "pred", "metaedge", "property", "type", "label", "relation_id"},
    "tail": {"tail", "object", "obj", "target", "dst", "destination", "to", "end", "tail_id", "tailid", "target_id"},
}
_LETTERS = (["h", "r", "t"], ["s", "p", "o"], ["h", "t", "r"])
_ID_CALLED = {"id", "index", "idx", "number", "entity_id", "relation_id", "ent_id", "rel_id"}
_NAME_CALLED = {"name", "label", "entity", "relation", "ent", "rel", "entities", "relations", "value", "text"}


@dataclass(frozen=True, slots=True)
class Sample:
    """The first rows of a file.

    rows: fields of the rows after a count and a header.
    delimiter: between fields.
    rows_begin: offset of the first row in the unpacked text.
    first_line: number of its line, from 1.
    stated: number of rows that the first line states.
    header: fields of the header.
    is_whole: whether the rows are all that the file has.
    """

    rows: Sequence[Sequence[str]]
    delimiter: str
    rows_begin: int
    first_line: int = 1
    stated: int | None = None
    header: Sequence[str] | None = None
    is_whole: bool = True


def is_whole_number(value: str) -> bool:
    """Check whether a field is a whole number from 0."""
    return _WHOLE.fullmatch(value) is not None


def sample_triples(path: Path, has_header: bool | None, named: Sequence[str]) -> Sample:
    """Read the start of a text of triples.

    has_header: whether the first row is a header; None: as it looks.
    named: columns that the user names; a first row with all of them is a header.
    """

    def is_header(rows: Sequence[Sequence[str]]) -> bool:
        if has_header is not None:
            return has_header
        by_name = {name for name in named if not is_whole_number(name)}
        return (bool(by_name) and by_name <= set(rows[0])) or header_of_triples(rows) is not None

    return _sample(path, PART_BYTES, 3, is_header)


def sample_dictionary(path: Path) -> Sample:
    """Read the start of a dictionary; usually all of it."""
    return _sample(path, DICTIONARY_BYTES, 2, _is_dictionary_header)


def header_of_triples(rows: Sequence[Sequence[str]]) -> tuple[int, ...] | None:
    """Find head, relation and tail by the names in the first row; None: it is no header, but a triple.

    A header's names occur once. Letters are a header only where they are the usual three.
    """
    names = [_plain(field) for field in rows[0]]
    if any(name in (row[place] for row in rows[1:] if place < len(row)) for place, name in enumerate(rows[0])):
        return None
    if names in _LETTERS:
        return tuple(names.index(letter) for letter in ("hrt" if "h" in names else "spo"))
    found = []
    for called in _CALLED.values():
        places = [place for place, name in enumerate(names) if name in called]
        if len(places) != 1:
            return None
        found += places
    return tuple(found)


def _sample(
    path: Path, num_bytes: int, num_columns: int, is_header: Callable[[Sequence[Sequence[str]]], bool]
) -> Sample:
    lines, is_whole = _first_lines(path, num_bytes)
    filled = [(number, offset, line) for number, (offset, line) in enumerate(lines, 1) if line.strip()]
    if not filled:
        return Sample([], TAB, lines[0][0] if lines else 0, is_whole=is_whole)
    delimiter = _find_delimiter([line for *_, line in filled[:2]], path, num_columns)
    rows = [split_fields(line, delimiter) for *_, line in filled]
    begin, stated, header = 0, None, None
    count = filled[0][-1].strip(" \t")
    if len(rows) > 1 and is_whole_number(count) and len(rows[1]) >= num_columns:
        begin, stated = 1, int(count[:_MOST_COUNT_DIGITS])
    if len(rows) > begin + 1 and is_header(rows[begin:]):
        header = rows[begin]
        begin += 1
    first_line, offset, _ = filled[begin]
    return Sample(rows[begin:], delimiter, offset, first_line, stated, header, is_whole)


def _first_lines(path: Path, num_bytes: int) -> tuple[list[tuple[int, str]], bool]:
    """Read the lines in the first bytes, each with its offset and without its line end, and whether they are all.

    Lines that are not text are replaced characters here; the import names them. Damage after a line is found later.
    """
    lines: list[tuple[int, str]] = []
    offset = 0
    with source_errors(str(path)):
        try:
            with open_text(path) as text:
                while offset < num_bytes and (line := text.readline(MOST_LINE_BYTES)):
                    begin = len(BOM) if offset == 0 and line.startswith(BOM) else 0
                    shown = line[begin:].rstrip(b"\r\n").decode(errors="replace")
                    lines.append((offset + begin, shown))
                    offset += len(line)
                is_whole = not text.read1(1)
        except DamageError:
            if not lines:
                with damage_errors(path):
                    raise
            is_whole = False
    return lines, is_whole


def _find_delimiter(lines: Sequence[str], path: Path, num_columns: int) -> str:
    """Decide what is between columns; the first of several lines can be a count."""
    if any("\t" in line.strip("\t ") for line in lines):
        return TAB
    last = lines[-1]
    if ".csv" in path.suffixes or (last.count(",") >= num_columns - 1 and " " not in last.strip()):
        return COMMA
    return BLANK if len(split_fields(last, BLANK)) >= num_columns else TAB


def _is_dictionary_header(rows: Sequence[Sequence[str]]) -> bool:
    first = {_plain(field) for field in rows[0]}
    return len(rows[0]) == 2 and bool(first & _ID_CALLED) and bool(first & _NAME_CALLED)


def _plain(field: str) -> str:
    return field.strip().strip('"').lstrip("~:").lower()
