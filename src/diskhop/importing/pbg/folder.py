"""Finds the files of a PyTorch-BigGraph folder: counts and names of entities and relations, and buckets of edges.

Entities have *types*, each split into *partitions*: entity_count_TYPE_PARTITION.txt, with names in
entity_names_TYPE_PARTITION.json. Edges are in *buckets*, one for each pair of partitions: edges_LHS_RHS.h5. Only
config.json, which PBG writes to the folder of checkpoints, states the types that a relation connects. It is not needed
for a single type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.manifest import MOST_COUNT
from diskhop.dataset.name_lines import to_lines
from diskhop.errors import SourceError
from diskhop.importing.pbg.json_names import json_lines
from diskhop.importing.source import NameList
from diskhop.importing.source_file import source_errors
from diskhop.importing.triples.names import ALL, PARTS
from diskhop.importing.triples.rows import ENTITIES, RELATIONS

_NUMBER = "(0|[1-9][0-9]{0,5})"
_COUNT_FILE = re.compile(rf"entity_count_(.+)_{_NUMBER}\.txt")
_EDGES_FILE = re.compile(rf"edges_{_NUMBER}_{_NUMBER}\.h5")
_COUNT = re.compile(r"\s*([0-9]{1,15})\s*")
_RELATION_COUNT, _RELATION_NAMES = "dynamic_rel_count.txt", "dynamic_rel_names.json"
_CONFIGURATION = "config.json"
_MOST_CONFIGURATION_BYTES = 16 << 20
_MOST_COUNT_BYTES = 100
# PBG's importer names the folder of train.txt train_partitioned.
_SUFFIX = "_partitioned"
_SYNONYMS = {"val": "valid"}


@dataclass(frozen=True, slots=True)
class EntityType:
    """Entities of a type.

    name: of the type.
    counts: entities per partition.
    first_id: id of its first entity in the numbering of all types.
    """

    name: str
    counts: tuple[int, ...]
    first_id: int

    @property
    def count(self) -> int:
        """Entities of all partitions."""
        return sum(self.counts)

    def in_bucket(self, partition: int) -> tuple[int, int]:
        """Return first id and number of entities in a partition; a type with one partition is whole in all buckets."""
        if len(self.counts) == 1:
            partition = 0
        return self.first_id + sum(self.counts[:partition]), self.counts[partition]


@dataclass(frozen=True, slots=True, kw_only=True)
class PbgFolder:
    """Files and counts of a folder.

    name: default name of the dataset.
    types: of entities, in the order of their ids.
    sides: types on the left and right of each relation; one entry: of all relations.
    num_relations: None: no file states it.
    buckets: by part, files of edges by the partitions of their two sides.
    names: of entities and relations, if there are any.
    """

    name: str
    types: Sequence[EntityType]
    sides: Sequence[tuple[EntityType, EntityType]]
    num_relations: int | None
    buckets: Mapping[str, Mapping[tuple[int, int], Path]]
    names: Mapping[str, NameList]


@dataclass(frozen=True, slots=True)
class _Relation:
    name: str
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class _Configuration:
    """The relations of config.json. are_dynamic: there is one entry for all relations, which another file counts."""

    relations: Sequence[_Relation]
    are_dynamic: bool


def is_pbg(source: Path) -> bool:
    """Check whether a source looks like a folder of PBG."""
    return source.is_dir() and any(_COUNT_FILE.fullmatch(path.name) for path in source.glob("entity_count_*"))


def find_pbg_files(source: Path) -> PbgFolder:
    """Find the files of a folder. Raises SourceError for missing or broken files; edges are not opened."""
    with source_errors(str(source)):
        types = _find_types(source)
        configuration = _read_configuration(source / _CONFIGURATION)
        sides = _find_sides(source, types, configuration)
        num_relations = _count_relations(source, configuration)
        return PbgFolder(
            name=source.resolve().name,
            types=types,
            sides=sides,
            num_relations=num_relations,
            buckets={part: _find_buckets(folder, sides) for part, folder in _find_parts(source).items()},
            names={**_entity_names(source, types), **_relation_names(source, configuration, num_relations)},
        )


def _find_types(source: Path) -> list[EntityType]:
    """Find the types, sorted by name. Types with several partitions must have the same number of them, as in PBG."""
    partitions: dict[str, set[int]] = {}
    for path in source.glob("entity_count_*"):
        if found := _COUNT_FILE.fullmatch(path.name):
            partitions.setdefault(found[1], set()).add(int(found[2]))
    if not partitions:
        raise SourceError(f"{source}: has no entity_count_TYPE_PARTITION.txt; give PBG's entity_path")
    types: list[EntityType] = []
    first_id = 0
    for name, numbers in sorted(partitions.items()):
        # A partition that is missing becomes an error with the name of its file.
        counts = tuple(_read_count(source / f"entity_count_{name}_{number}.txt") for number in range(max(numbers) + 1))
        types.append(EntityType(name, counts, first_id))
        first_id += types[-1].count
    several = [each for each in types if len(each.counts) > 1]
    for each in several:
        if len(each.counts) != len(several[0].counts):
            raise SourceError(
                f"{source}: types must have equal numbers of partitions, or one; '{several[0].name}' has "
                f"{len(several[0].counts)} and '{each.name}' {len(each.counts)}; give the folder of one import of PBG"
            )
    return types


def _find_sides(
    source: Path, types: Sequence[EntityType], configuration: _Configuration | None
) -> list[tuple[EntityType, EntityType]]:
    if configuration is None:
        if len(types) > 1:
            raise SourceError(
                f"{source}: has entities of {len(types)} types ({', '.join(each.name for each in types)}), and only "
                f"PBG's {_CONFIGURATION} states which a relation connects; copy it here from the folder of checkpoints"
            )
        return [(types[0], types[0])]
    by_name = {each.name: each for each in types}
    for relation in configuration.relations:
        for name in (relation.left, relation.right):
            if name not in by_name:
                raise SourceError(
                    f"{source / _CONFIGURATION}: relation {relation.name!r} has entities {name!r}, and there is "
                    f"no entity_count_{name}_0.txt; give the folder that {_CONFIGURATION} describes"
                )
    return [(by_name[relation.left], by_name[relation.right]) for relation in configuration.relations]


def _count_relations(source: Path, configuration: _Configuration | None) -> int | None:
    if configuration is not None and not configuration.are_dynamic:
        return len(configuration.relations)
    path = source / _RELATION_COUNT
    return _read_count(path) if configuration is not None or path.exists() else None


def _find_parts(source: Path) -> dict[str, Path]:
    """Find the folders with edges by part: this folder, or folders in it, named after parts unless there is one."""
    inner = sorted(path for path in source.iterdir() if path.is_dir())
    folders = [folder for folder in (source, *inner) if any(folder.glob("edges_*_*.h5"))]
    if not folders:
        raise SourceError(
            f"{source}: has no edges_LHS_RHS.h5, nor has a folder in it; give a folder with entities and edges"
        )
    parts: dict[str, Path] = {}
    for folder in folders:
        last_word = re.split(r"[^a-z]", folder.name.lower().removesuffix(_SUFFIX))[-1]
        part: str | None = _SYNONYMS.get(last_word, last_word)
        if folder == source or part not in PARTS:
            part = ALL if len(folders) == 1 else None
        if part is None or part in parts:
            other = next(each for each in folders if each != folder) if part is None else parts[part]
            raise SourceError(
                f"{folder}: has edges, like {other}, and the names of folders tell the parts train, valid and test "
                "apart; give each folder the name of a different part"
            )
        parts[part] = folder
    return {part: parts[part] for part in (*PARTS, ALL) if part in parts}


def _find_buckets(folder: Path, sides: Sequence[tuple[EntityType, EntityType]]) -> dict[tuple[int, int], Path]:
    """Find all buckets, by the partitions of their two sides."""
    most_left = max(len(left.counts) for left, _ in sides)
    most_right = max(len(right.counts) for _, right in sides)
    buckets = {pair: folder / f"edges_{pair[0]}_{pair[1]}.h5" for pair in product(range(most_left), range(most_right))}
    for path in folder.glob("edges_*.h5"):
        found = _EDGES_FILE.fullmatch(path.name)
        if found is None or (int(found[1]), int(found[2])) not in buckets:
            raise SourceError(
                f"{path}: is not among the {most_left} x {most_right} buckets that the counts of entities imply; "
                "give counts and edges of one import of PBG"
            )
    for path in buckets.values():
        if not path.is_file():
            raise SourceError(
                f"{path}: is missing, or not a regular file; PBG has all {most_left} x {most_right} buckets: "
                "add it, even if it has no edges"
            )
    return buckets


def _entity_names(source: Path, types: Sequence[EntityType]) -> dict[str, NameList]:
    files = [
        (source / f"entity_names_{each.name}_{number}.json", count)
        for each in types
        for number, count in enumerate(each.counts)
    ]
    missing = [path for path, _ in files if not path.exists()]
    if len(missing) == len(files):
        return {}
    if missing:
        raise SourceError(f"{missing[0]}: is missing, and other partitions have names; add it, or remove the others")

    def lines() -> Iterator[NDArray[np.uint8]]:
        for path, count in files:
            yield from json_lines(path, count)

    return {ENTITIES: NameList(count=sum(each.count for each in types), lines=lines)}


def _relation_names(
    source: Path, configuration: _Configuration | None, num_relations: int | None
) -> dict[str, NameList]:
    if num_relations is None:
        return {}
    if configuration is not None and not configuration.are_dynamic:
        lines = partial(iter, (to_lines(relation.name for relation in configuration.relations),))
        return {RELATIONS: NameList(count=num_relations, lines=lines)}
    path = source / _RELATION_NAMES
    if not path.exists():
        return {}
    return {RELATIONS: NameList(count=num_relations, lines=partial(json_lines, path, num_relations))}


def _read_count(path: Path) -> int:
    found = _COUNT.fullmatch(_read_text(path, _MOST_COUNT_BYTES))
    if found is None or int(found[1]) > MOST_COUNT:
        raise SourceError(f"{path}: must be one whole number, at most {MOST_COUNT}; fix the file")
    return int(found[1])


def _read_configuration(path: Path) -> _Configuration | None:
    if not path.exists():
        return None
    with source_errors(str(path)):
        document = json.loads(_read_text(path, _MOST_CONFIGURATION_BYTES))
    found = document if isinstance(document, dict) else {}
    relations, are_dynamic = found.get("relations"), found.get("dynamic_relations", False)
    if not isinstance(relations, list) or not relations or not isinstance(are_dynamic, bool):
        raise SourceError(f"{path}: must have a list of relations, as PBG writes it; fix the file")
    if are_dynamic and len(relations) > 1:
        raise SourceError(
            f"{path}: has {len(relations)} relations, and dynamic_relations requires one entry for all; fix the file"
        )
    return _Configuration([_parse_relation(each, path) for each in relations], are_dynamic)


def _parse_relation(given: Any, path: Path) -> _Relation:
    values = [given.get(key) if isinstance(given, dict) else None for key in ("name", "lhs", "rhs")]
    texts = [value for value in values if isinstance(value, str) and value.isprintable()]
    if len(texts) < len(values):
        raise SourceError(f"{path}: each relation must have name, lhs and rhs, in printable characters; fix the file")
    return _Relation(*texts)


def _read_text(path: Path, most_bytes: int) -> str:
    with source_errors(str(path)):
        if not path.is_file():
            raise SourceError(f"{path}: is missing, or not a regular file; add the one that PBG's importer writes")
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise SourceError(f"{path}: must be at most {most_bytes} bytes; fix the file")
        return content.decode()
