"""Layout of the texts of a knowledge graph: its files, their parts, and the columns of their rows.

A *part* (train, valid, test) is a file of triples. Triples are names, numbered here or by dictionaries (DGL-KE's
entities.dict and relations.dict, OpenKE's entity2id.txt), or ids of dictionaries: files *.del (LibKGE's), and others
whose values are whole numbers that are no names (OpenKE's train2id.txt).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from diskhop.errors import SourceError
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.options import ImportOptions
from diskhop.importing.shorten import shorten
from diskhop.importing.source_file import source_errors
from diskhop.importing.text.layout import TextFile
from diskhop.importing.text.packing import packing_of
from diskhop.importing.text.suffixes import text_stem
from diskhop.importing.triples.evidence import TripleColumns, decide, dictionary_kind, triple_kind
from diskhop.importing.triples.libkge import DESCRIPTION, read_description
from diskhop.importing.triples.names import (
    ALL,
    IDS_SUFFIX,
    DictionaryName,
    candidates,
    find_dictionaries,
    find_parts,
    plain_suffix,
)
from diskhop.importing.triples.rows import ENTITIES, RELATIONS, TAB, TRIPLE, RowKind
from diskhop.importing.triples.samples import (
    Sample,
    header_of_triples,
    is_whole_number,
    sample_dictionary,
    sample_triples,
)

_ROLES = {ENTITIES: "dictionary of entities", RELATIONS: "dictionary of relations"}
_USUAL_DICTIONARY = {ENTITIES: "entities.dict", RELATIONS: "relations.dict"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TripleFiles:
    """Files of a knowledge graph.

    name: default name of the dataset.
    parts: texts of triples by part.
    columns: what the columns of triples are.
    kinds: kinds of the rows, by part and by dictionary.
    dictionaries: texts of ids and names, of entities and relations.
    counts: numbers of rows of dictionaries and parts, and what states them, where something does.
    headers: headers of the parts, where they have one.
    passed_over: names of files in the folder that are not read.
    """

    name: str
    parts: Mapping[str, TextFile]
    columns: TripleColumns
    kinds: Mapping[str, RowKind]
    dictionaries: Mapping[str, TextFile] = field(default_factory=dict)
    counts: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    headers: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    passed_over: tuple[str, ...] = ()

    @property
    def files(self) -> list[TextFile]:
        """All files: parts, then dictionaries."""
        return [*self.parts.values(), *self.dictionaries.values()]

    @property
    def decisions(self) -> list[Decision]:
        """Describe what was decided, for people."""
        texts = {**self.parts, **self.dictionaries}
        found = [Decision(file.path.name, _ROLES.get(what, what), "by its name") for what, file in texts.items()]
        for what, (count, stating) in self.counts.items():
            found.append(Decision(f"rows of {texts[what].path.name}", str(count), f"by {stating}"))
        headers = {",".join(header) for header in self.headers.values() if header is not None}
        found.append(Decision("header", shorten(headers.pop()) if headers else "none", "the first rows"))
        for role, place in zip(TRIPLE, self.columns.places, strict=True):
            found.append(Decision(f"column {place + 1}", role, self.columns.why))
        why = "in the dictionaries" if self.dictionaries else "no dictionaries: numbered in the order of their bytes"
        found.append(Decision("values", "ids" if self.columns.are_ids else "names", why))
        return [*found, *(Decision(name, "not imported", "no part by its name") for name in self.passed_over)]


def is_triples(source: Path) -> bool:
    """Check whether a source looks like a folder of triples: dictionaries, or parts with rows of three columns."""
    if not source.is_dir():
        return False
    parts = next(iter(candidates(source).values()), {})
    if not parts:
        return False
    if (source / DESCRIPTION).exists() or _known_dictionaries(source).get(ENTITIES):
        return True
    if "train" not in parts or len(parts) < 2:
        return False
    return _has_triples(sample_triples(parts["train"][0], None, ()))


def find_triple_files(source: Path, options: ImportOptions) -> TripleFiles:
    """Find the files of a source. Raises SourceError if it has no triples."""
    with source_errors(str(source)):
        if not source.is_dir():
            _refuse_ids_alone(source)
            return _with_layout(text_stem(source.resolve()), {ALL: source}, {}, options)
        if (source / DESCRIPTION).exists():
            return _described_files(source, options)
        return _folder_files(source, options)


def _has_triples(sample: Sample) -> bool:
    """Check whether rows are triples. Between spaces or commas, three whole numbers could also be weighted edges."""
    if sample.header is not None:
        return header_of_triples([sample.header]) is not None
    rows = sample.rows
    if not rows or len(rows[0]) < len(TRIPLE):
        return False
    is_named = not any(is_whole_number(value) or _is_number(value) for row in rows for value in row[: len(TRIPLE)])
    return is_named or (sample.delimiter == TAB and len(rows[0]) == len(TRIPLE))


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _known_dictionaries(folder: Path) -> dict[str, list[tuple[DictionaryName, RowKind, Sample]]]:
    """Find the dictionaries of a folder, by their names and their rows."""
    known: dict[str, list[tuple[DictionaryName, RowKind, Sample]]] = {}
    for what, names in find_dictionaries(folder).items():
        for name in names:
            sample = sample_dictionary(name.path)
            kind = dictionary_kind(name, sample)
            if kind is not None:
                known.setdefault(what, []).append((name, kind, sample))
    return known


def _folder_files(folder: Path, options: ImportOptions) -> TripleFiles:
    parts = find_parts(folder)
    if not parts:
        raise SourceError(f"{folder}: has no train.txt, train.tsv or train.del; add one with triples")
    are_ids = {plain_suffix(path) == IDS_SUFFIX for path in parts.values()}
    if len(are_ids) > 1:
        given = " and ".join(path.name for path in parts.values())
        raise SourceError(f"{folder}: has {given}; *.del has ids and the others names: remove one kind")
    known = _known_dictionaries(folder)
    for found in known.values():
        if len(found) > 1:
            raise SourceError(f"{found[0][0].path}: there is also {found[1][0].path.name}; remove one")
    if True in are_ids and not known:
        _refuse_ids_alone(next(iter(parts.values())))
    missing = [name for what, name in _USUAL_DICTIONARY.items() if what not in known]
    if known and missing:
        (found,) = known.values()
        raise SourceError(f"{found[0][0].path}: requires {missing[0]} in the same folder; add it, or remove both")
    dictionaries = {what: (name.path, kind, sample) for what, ((name, kind, sample),) in sorted(known.items())}
    return _with_layout(folder.resolve().name, parts, dictionaries, options, are_ids=True in are_ids, folder=folder)


def _with_layout(
    name: str,
    parts: Mapping[str, Path],
    dictionaries: Mapping[str, tuple[Path, RowKind, Sample]],
    options: ImportOptions,
    *,
    are_ids: bool = False,
    folder: Path | None = None,
) -> TripleFiles:
    """Decide what the rows of the parts are. are_ids: whether they must be ids. folder: its other files are listed."""
    for path in parts.values():
        if not path.is_file():
            raise SourceError(f"{path}: is not a regular file; give a text of triples")
    samples = {path: sample_triples(path, options.header, options.columns or ()) for path in parts.values()}
    known = {what: (kind, sample) for what, (_, kind, sample) in dictionaries.items()}
    columns = decide(samples, known, options.columns, are_ids=are_ids)
    kinds = {part: triple_kind(columns, samples[path]) for part, path in parts.items()}
    kinds |= {what: kind for what, (kind, _) in known.items()}
    stated = {part: samples[path].stated for part, path in parts.items()}
    stated |= {what: sample.stated for what, (_, sample) in known.items()}
    used = {*parts.values(), *(path for path, *_ in dictionaries.values())}
    return TripleFiles(
        name=name,
        parts={part: _text_file(path, samples[path]) for part, path in parts.items()},
        columns=columns,
        headers={part: samples[path].header for part, path in parts.items()},
        kinds=kinds,
        dictionaries={what: _text_file(path, sample) for what, (path, _, sample) in dictionaries.items()},
        counts={what: (count, "its first line") for what, count in stated.items() if count is not None},
        passed_over=_others(folder, used) if folder is not None else (),
    )


def _others(folder: Path, used: set[Path]) -> tuple[str, ...]:
    paths = sorted(path for path in folder.iterdir() if path not in used and not path.name.startswith("."))
    return tuple(path.name for path in paths)


def _described_files(folder: Path, options: ImportOptions) -> TripleFiles:
    """Find the files that LibKGE's description names."""
    described = read_description(folder)
    dictionaries = {}
    for what, path in described.dictionaries.items():
        sample = sample_dictionary(path)
        kind = dictionary_kind(DictionaryName(path, is_sure=True, has_names_first=False), sample)
        assert kind is not None, "a sure name is always a dictionary's"
        dictionaries[what] = (path, kind, sample)
    found = _with_layout(described.name, described.parts, dictionaries, options, are_ids=True)
    by_description = {what: (count, "the description in its folder") for what, count in described.counts.items()}
    return replace(found, counts={**found.counts, **by_description})


def _refuse_ids_alone(path: Path) -> None:
    if plain_suffix(path) == IDS_SUFFIX:
        raise SourceError(
            f"{path}: has ids, and the names of the ids are missing; give a folder with {DESCRIPTION} and "
            "entity_ids.del, or with entities.dict and relations.dict"
        )


def _text_file(path: Path, sample: Sample) -> TextFile:
    status = path.stat()
    return TextFile(path, status.st_size, status.st_mtime_ns, packing_of(path), sample.rows_begin, None)
