"""Which table is which type: schema.toml, or the same from the names of files and columns.

[nodes.paper]                          # a type without a file has the ids that occur in edges, or 0 to count - 1
file = "nodes/paper.parquet"           # or a folder of parts, or a list of files
id = "id"
features = ["year", "x_*"]             # columns, or patterns of columns
label = "label"
split = "split"

[edges.author__writes__paper]          # or any name, with source_type, relation and destination_type
source = "author"                      # columns
destination = "paper"
weight = "weight"
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diskhop.dataset.encoding import FEATURE_DTYPES
from diskhop.dataset.fields import TYPE_NAME
from diskhop.dataset.manifest import LABEL_KINDS, MOST_COUNT
from diskhop.errors import SourceError
from diskhop.importing.source_file import source_errors

SCHEMA_NAME = "schema.toml"
Ends = tuple[str, str, str]
_TEXT, _TEXTS = "a text", "a text or a list of texts"


def _is_texts(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(each, str) for each in value))


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value < MOST_COUNT


_Rule = tuple[Callable[[Any], bool], str]
_A_TEXT: _Rule = (lambda value: isinstance(value, str), _TEXT)
_SOME_TEXTS: _Rule = (_is_texts, _TEXTS)
_NODE_KEYS: Mapping[str, _Rule] = {
    "file": _SOME_TEXTS,
    "id": _A_TEXT,
    "name": _A_TEXT,
    "features": _SOME_TEXTS,
    "dtype": (lambda value: value in FEATURE_DTYPES, f"one of {', '.join(FEATURE_DTYPES)}"),
    "label": _SOME_TEXTS,
    "label_kind": (lambda value: value in LABEL_KINDS, f"one of {', '.join(LABEL_KINDS)}"),
    "num_classes": (_is_count, "a whole number from 1"),
    "split": _A_TEXT,
    "time": _A_TEXT,
    "attributes": _SOME_TEXTS,
    "count": (_is_count, "a whole number from 1"),
}
_EDGE_KEYS: Mapping[str, _Rule] = {
    "file": _SOME_TEXTS,
    "source_type": _A_TEXT,
    "relation": _A_TEXT,
    "destination_type": _A_TEXT,
    "source": _A_TEXT,
    "destination": _A_TEXT,
    "weight": _A_TEXT,
    "time": _A_TEXT,
    "attributes": _SOME_TEXTS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeTable:
    """The table of one type.

    name: node type, or edge type (source__relation__destination).
    files: its parts; (): nodes without a table.
    given: what schema.toml says of it, by key.
    where: function that names the place of a key in schema.toml, for errors; None: there is no schema.toml.
    ends: types of an edge's ends, with its relation; None: of nodes.
    """

    name: str
    files: tuple[Path, ...]
    given: Mapping[str, Any] = field(default_factory=dict)
    where: Callable[[str], str] | None = None
    ends: Ends | None = None

    def names(self, key: str) -> tuple[str, ...] | None:
        """Return the columns that a key names; None: it is not there."""
        value = self.given.get(key)
        return None if value is None else (value,) if isinstance(value, str) else tuple(value)


@dataclass(frozen=True, slots=True)
class Schema:
    """Tables by type. shown: schema.toml, or the folder."""

    shown: Path
    nodes: Mapping[str, TypeTable]
    edges: Mapping[str, TypeTable]


def near(value: str, known: Iterable[str]) -> str:
    """Suggest a name that is spelled almost alike, for errors."""
    close = difflib.get_close_matches(value, list(known), 1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def read_schema(folder: Path, files_of: Callable[[Path], tuple[Path, ...]]) -> Schema:
    """Read schema.toml of a folder. files_of: lists the parts of a table at a path.

    Raises SourceError, with the line, for a key, type or file that is not there.
    """
    return _Reader(folder, files_of).read()


class _Reader:
    def __init__(self, folder: Path, files_of: Callable[[Path], tuple[Path, ...]]) -> None:
        self._folder = folder
        self._path = folder / SCHEMA_NAME
        self._files_of = files_of
        with source_errors(str(self._path)):
            self._text = self._path.read_text(encoding="utf-8")
        try:
            self._document = tomllib.loads(self._text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            found = re.search(r"\(at line (\d+), column \d+\)", str(error))
            place = f"{self._path}, line {found[1]}" if found else str(self._path)
            raise SourceError(
                f'{place}: is not TOML: {str(error).split(" (at")[0]}; write keys as in id = "column"'
            ) from error

    def read(self) -> Schema:
        self._require_known(self._document, ("nodes", "edges"), (), "")
        for kind in ("nodes", "edges"):
            tables = self._document.get(kind)
            if (
                not isinstance(tables, dict)
                or not tables
                or not all(isinstance(each, dict) for each in tables.values())
            ):
                raise SourceError(
                    f"{self._where((), kind)}: must have a table [{kind}.TYPE] for each type of {kind}; add them"
                )
        nodes = {name: self._nodes(name, given) for name, given in self._document["nodes"].items()}
        edges: dict[str, TypeTable] = {}
        for name, given in self._document["edges"].items():
            table = self._edges(name, given, nodes)
            if table.name in edges:
                raise SourceError(
                    f"{self._where(('edges', name))}: edges {table.name} are there twice; give one another relation"
                )
            edges[table.name] = table
        return Schema(self._path, nodes, edges)

    def _nodes(self, name: str, given: dict[str, Any]) -> TypeTable:
        header = ("nodes", name)
        self._check(given, _NODE_KEYS, header)
        self._check_name(name, header, "")
        files = self._find_files(given, header, f"nodes/{name}", is_needed="count" not in given and len(given) > 0)
        if not files and given.keys() - {"count"}:
            key = next(iter(given.keys() - {"count"}))
            raise SourceError(
                f"{self._where(header, key)}: {key} needs a file of nodes '{name}'; add file, or remove it"
            )
        return TypeTable(name=name, files=files, given=given, where=lambda key: self._where(header, key))

    def _edges(self, name: str, given: dict[str, Any], nodes: Mapping[str, TypeTable]) -> TypeTable:
        header = ("edges", name)
        self._check(given, _EDGE_KEYS, header)
        parts = split_ends(name)
        source, relation, destination = parts if parts is not None else ("", name, "")
        ends: Ends = (
            given.get("source_type", source),
            given.get("relation", relation),
            given.get("destination_type", destination),
        )
        for key, each in (("source_type", ends[0]), ("destination_type", ends[2])):
            if not each:
                raise SourceError(
                    f"{self._where(header)}: must say {key}, or have a name such as author__writes__paper; add it"
                )
            if each not in nodes:
                raise SourceError(
                    f"{self._where(header, key)}: there are no nodes '{each}'{near(each, nodes)}; "
                    f"add [nodes.{each}], or use one of {', '.join(nodes)}"
                )
        self._check_name(ends[1], header, "relation")
        files = self._find_files(given, header, f"edges/{name}", is_needed=True)
        return TypeTable(
            name="__".join(ends), files=files, given=given, where=lambda key: self._where(header, key), ends=ends
        )

    def _find_files(
        self, given: Mapping[str, Any], header: tuple[str, ...], usual: str, is_needed: bool
    ) -> tuple[Path, ...]:
        named = given.get("file")
        paths = [named] if isinstance(named, str) else named
        if paths is None:
            files = self._files_of(self._folder / usual)
            if not files and is_needed:
                raise SourceError(
                    f"{self._where(header)}: has no file, and there is no {usual}.parquet or {usual}.csv; "
                    f'add file = "..."'
                )
            return files
        found: list[Path] = []
        for path in paths:
            files = self._files_of(self._folder / path)
            if not files:
                raise SourceError(
                    f"{self._where(header, 'file')}: {self._folder / path} does not exist, or is no table; "
                    "give a .parquet or .csv file, or a folder of such"
                )
            found += files
        return tuple(found)

    def _check(self, given: Mapping[str, Any], rules: Mapping[str, _Rule], header: tuple[str, ...]) -> None:
        self._require_known(given, rules, header, f" in [{'.'.join(header)}]")
        for key, value in given.items():
            holds, text = rules[key]
            if not holds(value):
                raise SourceError(f"{self._where(header, key)}: {key} must be {text}, got {value!r}; correct it")

    def _check_name(self, name: str, header: tuple[str, ...], key: str) -> None:
        if not TYPE_NAME.fullmatch(name) or "__" in name:
            raise SourceError(
                f"{self._where(header, key)}: type name {name!r} must be letters, digits and _ . + = -, at most 100 "
                "characters, without __; rename the type"
            )

    def _require_known(self, given: Iterable[str], known: Iterable[str], header: tuple[str, ...], shown: str) -> None:
        for key in given:
            if key not in known:
                raise SourceError(
                    f"{self._where(header, key)}: unknown key '{key}'{shown}{near(key, known)}; "
                    f"the known ones are {', '.join(known)}"
                )

    def _where(self, header: tuple[str, ...], key: str = "") -> str:
        """Name the line of a key below a header, of the header without a key, or of what comes nearest."""
        lines = self._text.splitlines()
        begin = 0
        if header:
            quoted = r"\s*\.\s*".join(rf"[\"']?{re.escape(each)}[\"']?" for each in header)
            begin = next((n for n, line in enumerate(lines) if re.match(rf"\s*\[\s*{quoted}\s*\]", line)), 0)
        stop = len(lines)
        if header:
            stop = next((n for n in range(begin + 1, len(lines)) if re.match(r"\s*\[", lines[n])), len(lines))
        wanted = rf"\s*(\[\s*)?[\"']?{re.escape(key)}[\"']?\s*[=.\]]"
        found = next((n for n in range(begin, stop) if key and re.match(wanted, lines[n])), begin)
        return f"{self._path}, line {found + 1}"


def split_ends(name: str) -> Ends | None:
    """Read the ends of an edge type from its name, such as author__writes__paper; None: it tells none."""
    parts = re.split(r"_{2,3}", name)
    if len(parts) != 3 or not all(TYPE_NAME.fullmatch(each) for each in parts):
        return None
    return parts[0], parts[1], parts[2]
