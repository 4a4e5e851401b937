"""LibKGE's folders: a description names the files of the parts and of the dictionaries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from diskhop.errors import SourceError
from diskhop.importing.shorten import shorten
from diskhop.importing.source_file import source_errors
from diskhop.importing.triples.names import IDS_SUFFIX, PARTS, file_named
from diskhop.importing.triples.rows import ENTITIES, RELATIONS

DESCRIPTION = "dataset.yaml"
# Keys of the dictionaries and of their numbers of names.
_KEYS = {ENTITIES: ("entity_ids", "num_entities"), RELATIONS: ("relation_ids", "num_relations")}
_MOST_BYTES = 1 << 20
_MOST_COUNT_DIGITS = 15


@dataclass(frozen=True, slots=True)
class Described:
    """Content of a description.

    name: the graph's name.
    parts: files of triples by part.
    dictionaries: files of ids and names, of entities and relations.
    counts: their numbers of names, where it states them.
    """

    name: str
    parts: Mapping[str, Path]
    dictionaries: Mapping[str, Path]
    counts: Mapping[str, int]


def read_description(folder: Path) -> Described:
    """Find the files of a folder by the names in its description, else by the usual names."""
    facts = _read_facts(folder / DESCRIPTION)

    def path_of(key: str) -> Path | None:
        name = facts.get(f"files.{key}.filename", f"{key}{IDS_SUFFIX}")
        if Path(name).name != name:
            raise SourceError(f"{folder / DESCRIPTION}: names the file {shorten(name)}; name one in the same folder")
        return file_named(folder, name)

    dictionaries, counts = {}, {}
    for what, (key, count_key) in _KEYS.items():
        path = path_of(key)
        if path is None:
            raise SourceError(f"{folder}: has {DESCRIPTION} but no {key}{IDS_SUFFIX}; add the names of its ids")
        dictionaries[what] = path
        if facts.get(count_key, "").isdecimal():
            counts[what] = int(facts[count_key][:_MOST_COUNT_DIGITS])
    parts = {part: path for part in PARTS if (path := path_of(part)) is not None}
    if not parts:
        raise SourceError(f"{folder}: has {DESCRIPTION} but no train{IDS_SUFFIX}; add triples")
    return Described(facts.get("name", folder.resolve().name), parts, dictionaries, counts)


def _read_facts(path: Path) -> dict[str, str]:
    """Read keys and plain values under `dataset` in LibKGE's YAML, one per line; other content is ignored."""
    with source_errors(str(path)):
        if path.stat().st_size > _MOST_BYTES:
            raise SourceError(f"{path}: must be at most {_MOST_BYTES} bytes long; give LibKGE's file")
        text = path.read_text(encoding="utf-8-sig")
    pairs = re.findall(r"^  ([\w.]+):[ \t]*(?:'([^']+)'|\"([^\"]+)\"|([^\s#'\"]+))[ \t]*(?:#.*)?$", text, re.M)
    return {key: next(filter(None, values)) for key, *values in pairs}
