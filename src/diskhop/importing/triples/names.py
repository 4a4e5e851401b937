"""Names of files in folders of triples: which file is which part, and which are dictionaries.

Recognised are the names of published folders: train.txt, dev.tsv, train2id.txt, wn18-test.txt, entities.dict,
entity2id.txt, relation_ids.del, plain or compressed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from diskhop.errors import SourceError
from diskhop.importing.text.packing import SUFFIXES as PACKED_SUFFIXES
from diskhop.importing.text.packing import plain_name
from diskhop.importing.triples.rows import ENTITIES, RELATIONS

PARTS = ("train", "valid", "test")
# Part of a text that is no part of a folder.
ALL = "all"
# LibKGE's suffix: rows of ids.
IDS_SUFFIX = ".del"
_PARTS_CALLED = {
    "train": PARTS[0],
    "training": PARTS[0],
    "valid": PARTS[1],
    "validation": PARTS[1],
    "val": PARTS[1],
    "dev": PARTS[1],
    "test": PARTS[2],
    "testing": PARTS[2],
}
_PART = re.compile(rf"(?:(.+)[-_.])?({'|'.join(_PARTS_CALLED)})(2id)?(\.txt|\.tsv|\.csv|\.del|)", re.I)
_DICTIONARIES = {
    ENTITIES: re.compile(r"(?:entity|entities|ent)(_?(?:2|to)_?ids?|_?ids?)?(\.dict|\.txt|\.tsv|\.csv|\.del|)", re.I),
    RELATIONS: re.compile(r"(?:relations?|rel)(_?(?:2|to)_?ids?|_?ids?)?(\.dict|\.txt|\.tsv|\.csv|\.del|)", re.I),
}


@dataclass(frozen=True, slots=True)
class DictionaryName:
    """Facts that a dictionary's name tells.

    path: the file.
    is_sure: whether only dictionaries are called so; others need two columns, one of whole numbers.
    has_names_first: whether files called so have the name before the id.
    """

    path: Path
    is_sure: bool
    has_names_first: bool


def candidates(folder: Path) -> dict[str, dict[str, list[Path]]]:
    """List files that are called like parts: by what is before the part's name, then by part."""
    found: dict[str, dict[str, list[Path]]] = {}
    for path in _files(folder):
        called = _PART.fullmatch(plain_name(path.name))
        if called is not None:
            parts = found.setdefault(called[1] or "", {})
            parts.setdefault(_PARTS_CALLED[called[2].lower()], []).append(path)
    return {"": found[""]} if "" in found else found


def find_parts(folder: Path) -> dict[str, Path]:
    """Find the parts of a folder. Raises SourceError for two files of one part."""
    found = candidates(folder)
    if len(found) > 1:
        named = " and ".join(sorted(found)[:2])
        raise SourceError(f"{folder}: has parts of several graphs, {named}; move each to a folder of its own")
    parts = next(iter(found.values()), {})
    for part in parts.values():
        if len(part) > 1:
            raise SourceError(f"{part[0]}: there is also {part[1].name}; remove one")
    return {part: parts[part][0] for part in PARTS if part in parts}


def find_dictionaries(folder: Path) -> Mapping[str, list[DictionaryName]]:
    """Find what may be dictionaries of entities and relations."""
    found: dict[str, list[DictionaryName]] = {}
    for path in _files(folder):
        for what, pattern in _DICTIONARIES.items():
            called = pattern.fullmatch(plain_name(path.name))
            if called is not None:
                is_sure = bool(called[1]) or called[2] == ".dict"
                names_first = bool(called[1]) and ("2" in called[1] or "to" in called[1])
                found.setdefault(what, []).append(DictionaryName(path, is_sure, names_first))
    return found


def is_called_as_openke(path: Path) -> bool:
    """Check whether a part is called as OpenKE does, whose triples are head, tail, relation."""
    called = _PART.fullmatch(plain_name(path.name))
    return called is not None and called[3] is not None


def plain_suffix(path: Path) -> str:
    """Return the suffix of a file's name without that of its packing."""
    return Path(plain_name(path.name)).suffix


def file_named(folder: Path, name: str) -> Path | None:
    """Find a file, plain or compressed; None: there is none."""
    found = [path for suffix in ("", *PACKED_SUFFIXES) if (path := folder / f"{name}{suffix}").exists()]
    if len(found) > 1:
        raise SourceError(f"{found[0]}: there is also {found[1].name}; remove one")
    return found[0] if found else None


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.iterdir()) if not path.name.startswith(".") and path.is_file())
