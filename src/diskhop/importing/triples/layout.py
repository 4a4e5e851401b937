"""Layout of the texts of a knowledge graph: its files, and the columns of their rows.

A row of triples has three columns between tabs: head, relation, tail. A *part* (train, valid, test) is a file. A row of
a *dictionary* is an id and a name. Triples are names, numbered here or by dictionaries (DGL-KE's entities.dict and
relations.dict). In files *.del (LibKGE's) they are ids of dictionaries. There are no quotes and no comments: any text
between tabs is a name. Empty lines are skipped.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from diskhop.errors import SourceError
from diskhop.importing.source_file import changed_error, source_errors
from diskhop.importing.text.layout import TextFile, text_stem
from diskhop.importing.text.packing import SUFFIXES as PACKED_SUFFIXES
from diskhop.importing.text.packing import packing_of, plain_name
from diskhop.importing.text.rows import Slice
from diskhop.importing.text.streams import BOM, MOST_LINE_BYTES, at_line, damage_errors, decode_line, open_text

PARTS = ("train", "valid", "test")
ALL = "all"
ENTITIES, RELATIONS = "entities", "relations"
NAME, NUMBER = "VARCHAR", "BIGINT"
_PART_SUFFIXES = (".txt", ".tsv", ".del")
_IDS_SUFFIX = ".del"
_DICTIONARIES = {ENTITIES: "entities.dict", RELATIONS: "relations.dict"}
# LibKGE's description, and its keys for the dictionaries and their numbers of names.
_DESCRIPTION = "dataset.yaml"
_DESCRIBED = {ENTITIES: ("entity_ids", "num_entities"), RELATIONS: ("relation_ids", "num_relations")}
_MOST_DESCRIPTION_BYTES = 1 << 20
# Three names fit on the longest line, and an id of this many digits is within a dataset's limit.
_MOST_NAME_BYTES = 1 << 18
_MOST_DIGITS = 14
_FIELDS = {
    NAME: rb"[^\t\n\r]{1,%d}+" % _MOST_NAME_BYTES,
    NUMBER: rb"[0-9]{1,%d}+" % _MOST_DIGITS,
}
_EMPTY_LINES = re.compile(rb"^\n", re.M)
_CHECKED_BYTES = 1 << 20
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class RowKind:
    """Kind of row. columns: NAME or NUMBER, by column."""

    columns: Mapping[str, str]

    def rows_of(self, piece: Slice) -> bytes:
        """Return the rows of a slice, each with its LF. Raises SourceError, with file and line, for a malformed row."""
        offset, lines = piece.read()
        content = lines.replace(b"\r\n", b"\n") if b"\r" in lines else lines
        rest = self._row.sub(b"", content)
        if rest.strip(b"\n") or not _is_utf8(content):
            raise self._fault(piece, offset, lines)
        return _EMPTY_LINES.sub(b"", content) if rest else content

    def find_row(self, piece: Slice, number: int) -> tuple[str, list[str]]:
        """Find a row of a slice by its number from 0: its place, and its fields."""
        offset, lines = piece.read()
        for line_number, line in enumerate(io.BytesIO(lines), piece.line_at(offset)):
            if line.strip(b"\r\n"):
                if number == 0:
                    return at_line(piece.shown, line_number), line.decode().rstrip("\r\n").split("\t")
                number -= 1
        raise changed_error(piece.shown)

    @cached_property
    def _row(self) -> re.Pattern[bytes]:
        return re.compile(rb"^" + rb"\t".join(_FIELDS[kind] for kind in self.columns.values()) + rb"\n", re.M)

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
        if not text:
            return None
        if "\r" in text:
            return "a line must end with LF or CR LF, got a CR within it; save the file with line feeds"
        fields = text.split("\t")
        if len(fields) != len(self.columns):
            return (
                f"a row must have {len(self.columns)} columns between tabs, {', '.join(self.columns)}, "
                f"got {len(fields)}; fix the line"
            )
        for (name, kind), value in zip(self.columns.items(), fields, strict=True):
            if not value:
                return f"the {name} is missing; add it, or remove the line"
            if kind == NAME and len(value.encode()) > _MOST_NAME_BYTES:
                return (
                    f"the {name} must be at most {_MOST_NAME_BYTES} bytes long, got {len(value.encode())}; shorten it"
                )
            if kind == NUMBER and (not value.isascii() or not value.isdecimal()):
                return f"the {name} must be a whole number, got '{shown(value)}'; correct it"
            if kind == NUMBER and len(value) > _MOST_DIGITS:
                return f"the {name} must be an id of at most {_MOST_DIGITS} digits, got '{shown(value)}'; correct it"
        return None


DICTIONARY_ROWS = RowKind({"id": NUMBER, "name": NAME})
NAMED_ROWS = RowKind({"head": NAME, "relation": NAME, "tail": NAME})
NUMBERED_ROWS = RowKind({"head": NUMBER, "relation": NUMBER, "tail": NUMBER})


@dataclass(frozen=True, slots=True, kw_only=True)
class TripleFiles:
    """Files of a knowledge graph.

    name: default name of the dataset.
    parts: texts of triples by part.
    are_ids: whether triples are ids of the dictionaries.
    dictionaries: texts of ids and names, of entities and relations.
    counts: numbers of names, if a description states them.
    """

    name: str
    parts: Mapping[str, TextFile]
    are_ids: bool
    dictionaries: Mapping[str, TextFile] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def files(self) -> list[TextFile]:
        """All files: parts, then dictionaries."""
        return [*self.parts.values(), *self.dictionaries.values()]


def is_triples(source: Path) -> bool:
    """Check whether a source looks like a folder of triples: dictionaries, or parts with rows of three columns."""
    if not source.is_dir():
        return False
    found = {part: _candidates(source, part) for part in PARTS}
    if (source / _DESCRIPTION).exists() or _file_named(source, _DICTIONARIES[ENTITIES]) is not None:
        return any(found.values())
    if not found["train"] or not (found["valid"] or found["test"]):
        return False
    with damage_errors(found["train"][0]), open_text(found["train"][0]) as text:
        lines = iter(partial(text.readline, MOST_LINE_BYTES), b"")
        first = next((line for line in lines if line.strip(b"\r\n")), b"")
    return first.count(b"\t") == len(NAMED_ROWS.columns) - 1


def find_triple_files(source: Path) -> TripleFiles:
    """Find the files of a source. Raises SourceError if it has no triples."""
    with source_errors(str(source)):
        if not source.is_dir():
            _refuse_ids_alone(source)
            return TripleFiles(name=text_stem(source.resolve()), parts={ALL: _text_file(source)}, are_ids=False)
        if (source / _DESCRIPTION).exists():
            return _described_files(source)
        return _folder_files(source)


def shown(value: str) -> str:
    """Shorten a name for errors."""
    return value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}..."


def _folder_files(folder: Path) -> TripleFiles:
    parts = {}
    for part in PARTS:
        found = _candidates(folder, part)
        if len(found) > 1:
            raise SourceError(f"{found[0]}: there is also {found[1].name}; remove one")
        if found:
            parts[part] = found[0]
    if not parts:
        raise SourceError(f"{folder}: has no train.txt, train.tsv or train.del; add one with triples")
    are_ids = {_plain_suffix(path) == _IDS_SUFFIX for path in parts.values()}
    if len(are_ids) > 1:
        given = " and ".join(path.name for path in parts.values())
        raise SourceError(f"{folder}: has {given}; *.del has ids and the others names: remove one kind")
    paths = {what: _file_named(folder, name) for what, name in _DICTIONARIES.items()}
    known = {what: path for what, path in paths.items() if path is not None}
    if True in are_ids and not known:
        _refuse_ids_alone(next(iter(parts.values())))
    missing = [_DICTIONARIES[what] for what in paths if what not in known]
    if known and missing:
        raise SourceError(
            f"{next(iter(known.values()))}: requires {missing[0]} in the same folder; add it, or remove both"
        )
    return TripleFiles(
        name=folder.resolve().name,
        parts={part: _text_file(path) for part, path in parts.items()},
        are_ids=True in are_ids,
        dictionaries={what: _text_file(path) for what, path in known.items()},
    )


def _described_files(folder: Path) -> TripleFiles:
    """Find the files of LibKGE's folders by the names in the description, else by the usual names."""
    facts = _read_description(folder / _DESCRIPTION)

    def path_of(key: str) -> Path | None:
        name = facts.get(f"files.{key}.filename", f"{key}{_IDS_SUFFIX}")
        if Path(name).name != name:
            raise SourceError(f"{folder / _DESCRIPTION}: names the file '{shown(name)}'; name one in the same folder")
        return _file_named(folder, name)

    dictionaries, counts = {}, {}
    for what, (key, count_key) in _DESCRIBED.items():
        path = path_of(key)
        if path is None:
            raise SourceError(f"{folder}: has {_DESCRIPTION} but no {key}{_IDS_SUFFIX}; add the names of its ids")
        dictionaries[what] = _text_file(path)
        if facts.get(count_key, "").isdecimal():
            counts[what] = int(facts[count_key][: _MOST_DIGITS + 1])
    parts = {part: _text_file(path) for part in PARTS if (path := path_of(part)) is not None}
    if not parts:
        raise SourceError(f"{folder}: has {_DESCRIPTION} but no train{_IDS_SUFFIX}; add triples")
    name = facts.get("name", folder.resolve().name)
    return TripleFiles(name=name, parts=parts, are_ids=True, dictionaries=dictionaries, counts=counts)


def _read_description(path: Path) -> dict[str, str]:
    """Read keys and plain values under `dataset` in LibKGE's YAML, one per line; other content is ignored."""
    with source_errors(str(path)):
        if path.stat().st_size > _MOST_DESCRIPTION_BYTES:
            raise SourceError(f"{path}: must be at most {_MOST_DESCRIPTION_BYTES} bytes long; give LibKGE's file")
        text = path.read_text(encoding="utf-8-sig")
    pairs = re.findall(r"^  ([\w.]+):[ \t]*(?:'([^']+)'|\"([^\"]+)\"|([^\s#'\"]+))[ \t]*(?:#.*)?$", text, re.M)
    return {key: next(filter(None, values)) for key, *values in pairs}


def _refuse_ids_alone(path: Path) -> None:
    if _plain_suffix(path) == _IDS_SUFFIX:
        raise SourceError(
            f"{path}: has ids, and the names of the ids are missing; "
            f"give a folder with {_DESCRIPTION} and entity_ids.del, or with "
            "entities.dict and relations.dict"
        )


def _candidates(folder: Path, part: str) -> list[Path]:
    paths = (_file_named(folder, part + suffix) for suffix in _PART_SUFFIXES)
    return [path for path in paths if path is not None]


def _file_named(folder: Path, name: str) -> Path | None:
    """Find a file, plain or compressed; None: there is none."""
    found = [path for suffix in ("", *PACKED_SUFFIXES) if (path := folder / f"{name}{suffix}").exists()]
    if len(found) > 1:
        raise SourceError(f"{found[0]}: there is also {found[1].name}; remove one")
    return found[0] if found else None


def _plain_suffix(path: Path) -> str:
    return Path(plain_name(path.name)).suffix


def _text_file(path: Path) -> TextFile:
    with source_errors(str(path)):
        if not path.is_file():
            raise SourceError(f"{path}: is not a regular file; give a text of triples")
        status = path.stat()
        with open_text(path) as text:
            rows_begin = len(BOM) if text.read(len(BOM)) == BOM else 0
        return TextFile(path, status.st_size, status.st_mtime_ns, packing_of(path), rows_begin, None)


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
