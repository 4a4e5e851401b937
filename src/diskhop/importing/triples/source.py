"""Knowledge graphs in texts of triples: names (TSV), LibKGE's folders of ids, and DGL-KE's with dictionaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.manifest import NODE
from diskhop.errors import ReadError, SourceError
from diskhop.importing.estimate import EDGES_PER_NODE, Load
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.numbering.ids import count_listed, listed_names
from diskhop.importing.numbering.tasks import ListIds, read_parquet
from diskhop.importing.options import ImportOptions
from diskhop.importing.source import Column, SourceGraph, SourceKind, SourceNodes, SourceTriples
from diskhop.importing.text.rows import Slice
from diskhop.importing.text.streams import row_bytes, text_bytes, texts_bytes
from diskhop.importing.text.work import TextWork
from diskhop.importing.tools import ImportLimits, ImportTools
from diskhop.importing.triples.layout import TripleFiles, find_triple_files, is_triples
from diskhop.importing.triples.rows import ENTITIES, RELATIONS
from diskhop.importing.triples.tasks import (
    TRIPLE_BYTES,
    NumberNames,
    ParseIds,
    ParseTexts,
    SortDictionary,
    count_triples,
)
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.duck import Duck, require_text_path

PARSING = "parsing triples"
# Finished work of another format is discarded.
_WORK_FORMAT = 2
# Memory that DuckDB needs to sort and join.
_DUCK_BYTES = 64 << 20
# Memory per byte of a slice, in addition to DuckDB's: a row of 6 bytes is three ids, its place, and the sorted ids.
_BYTES_PER_BYTE = 12
_TRIPLES_PER_BLOCK = (4 << 20) // TRIPLE_BYTES
_LISTED_COLUMNS = {ENTITIES: ("head", "tail"), RELATIONS: ("relation",)}


class Triples:
    """Source in texts of triples. Raises SourceError if there are none."""

    def __init__(self, source: Path, options: ImportOptions) -> None:
        self._files = find_triple_files(source, options)

    @property
    def decisions(self) -> Sequence[Decision]:
        """See Source."""
        return self._files.decisions

    @property
    def name(self) -> str:
        """See Source."""
        return self._files.name

    def least_memory(self, limits: ImportLimits) -> Mapping[str, int]:
        """See Source."""
        longest_bytes = max(text_bytes(file) for file in self._files.files)
        return {PARSING: _DUCK_BYTES + _BYTES_PER_BYTE * min(limits.triples_slice_bytes, longest_bytes)}

    @property
    def load(self) -> Load:
        """See Source: unpacked text, rows with the lists of their names, and triples are kept."""
        files = self._files.files
        text, unpacked = texts_bytes(files)
        parts = self._files.parts.values()
        num_triples = sum(int(text_bytes(file) / row_bytes(file.path, file.rows_begin)) for file in parts)
        return Load(
            source_bytes=sum(file.num_bytes for file in files),
            inflated_bytes=unpacked,
            pair_text_bytes=text if self._files.columns.are_ids else 0,
            name_text_bytes=0 if self._files.columns.are_ids else text,
            kept_bytes=unpacked + text + TRIPLE_BYTES * num_triples,
            triple_bytes=TRIPLE_BYTES * num_triples,
            num_nodes=num_triples // EDGES_PER_NODE,
            name_bytes=text // (3 * EDGES_PER_NODE),
        )

    def read(self, work: ImportTools) -> SourceGraph:
        """See Source."""
        require_text_path(work.folder.path)
        numbered = _TripleWork(self._files, work).run()
        names = {what: listed_names(listed, numbered.counts[what], work) for what, listed in numbered.listed.items()}
        triples = SourceTriples(parts=numbered.parts, num_relations=numbered.counts[RELATIONS])
        return SourceGraph(
            nodes={NODE: SourceNodes(count=numbered.counts[ENTITIES])},
            triples=triples,
            names=names,
            facts={"passed_over": list(self._files.passed_over)},
        )


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Numbered triples.

    parts: triples by part.
    listed: Parquet files (id, name) of entities and relations.
    counts: numbers of entities and relations.
    """

    parts: Mapping[str, Column]
    listed: Mapping[str, Path]
    counts: Mapping[str, int]


class _TripleWork:
    """Stages of one import: unpack, parse, list the names, number the triples."""

    def __init__(self, files: TripleFiles, work: ImportTools) -> None:
        self._files = files
        self._work = work
        self._slice_bytes = work.limits.triples_slice_bytes
        self._texts = TextWork(files.files, work, self._key)

    def run(self) -> _Numbered:
        """Run the unfinished stages. Raises SourceError, with file and line, for a row that breaks a rule."""
        self._texts.unpack()
        slice_bytes = self._texts.slice_bytes(self._slice_bytes)
        available_bytes = self._work.budget.available_bytes
        # Every group of slices is joined with all names: the more memory, the fewer groups.
        spare_bytes = (available_bytes - _DUCK_BYTES) // _BYTES_PER_BYTE
        group_bytes = min(spare_bytes, available_bytes // self._work.limits.triples_group_share)
        slices_at_once = max(1, group_bytes // max(1, slice_bytes))
        held_bytes = _BYTES_PER_BYTE * slices_at_once * slice_bytes
        duck_bytes = max(_DUCK_BYTES, available_bytes - held_bytes)
        with (
            self._work.budget.reserve(PARSING, held_bytes + duck_bytes),
            Duck(duck_bytes, self._work.threads, self._work.spill) as duck,
        ):
            numbered = self._number(duck, slices_at_once)
        self._texts.require_unchanged()
        return numbered

    def _no_triples(self, part: str) -> SourceError:
        return SourceError(f"{self._files.parts[part].path}: has no triples; add some, or remove the file")

    def _number(self, duck: Duck, slices_at_once: int) -> _Numbered:
        pieces = [list(self._texts.slices_of(number, self._slice_bytes)) for number in range(len(self._files.files))]
        of_parts = dict(zip(self._files.parts, pieces, strict=False))
        for part, found in of_parts.items():
            if not found:
                raise self._no_triples(part)
        of_dictionaries = dict(zip(self._files.dictionaries, pieces[len(of_parts) :], strict=True))
        kinds = self._files.kinds
        threads = min(slices_at_once, self._work.threads)
        listed = {}
        if of_dictionaries:
            listed = self._sort_dictionaries(of_dictionaries, threads, duck)
        counts = {what: count_listed(path, duck) for what, path in listed.items()}
        for what, count in counts.items():
            self._check_count(what, count, "names")
        if self._files.columns.are_ids:
            tasks = [
                ParseIds(name, piece, kinds[part], counts, duck)
                for part, named in of_parts.items()
                for name, piece in named
            ]
            by_part = _split(self._texts.run("numbered", tasks, threads, "parsing"), of_parts)
        else:
            parse = [
                ParseTexts(name, piece, kinds[part], duck) for part, named in of_parts.items() for name, piece in named
            ]
            rows = self._texts.run("rows", parse, threads, "parsing")
            if not of_dictionaries:
                listing = [
                    ListIds(what, read_parquet(*rows), duck, columns) for what, columns in _LISTED_COLUMNS.items()
                ]
                listed = dict(zip(_LISTED_COLUMNS, self._texts.run("names", listing, 1, "listing names"), strict=True))
                counts = {what: count_listed(path, duck) for what, path in listed.items()}
            by_part = self._number_names(_split(rows, of_parts), of_parts, listed, slices_at_once, duck)
        parts = {}
        for part, paths in by_part.items():
            column = StoredTriples(str(self._files.parts[part].path), paths, self._key("numbered"))
            if column.shape[0] == 0:
                raise self._no_triples(part)
            self._check_count(part, column.shape[0], "triples")
            parts[part] = column
        return _Numbered(parts, listed, counts)

    def _sort_dictionaries(
        self, of_dictionaries: Mapping[str, Sequence[tuple[str, Slice]]], threads: int, duck: Duck
    ) -> dict[str, Path]:
        for what, named in of_dictionaries.items():
            if not named:
                raise SourceError(f"{self._files.dictionaries[what].path}: has no names; add one line per id")
        parse = [
            ParseTexts(name, piece, self._files.kinds[what], duck)
            for what, named in of_dictionaries.items()
            for name, piece in named
        ]
        rows = _split(self._texts.run("dictionaries", parse, threads, "parsing names"), of_dictionaries)
        tasks = [
            SortDictionary(what, tuple(rows[what]), tuple(piece for _, piece in named), self._files.kinds[what], duck)
            for what, named in of_dictionaries.items()
        ]
        return dict(zip(of_dictionaries, self._texts.run("names", tasks, 1, "sorting names"), strict=True))

    def _number_names(
        self,
        rows: Mapping[str, Sequence[Path]],
        of_parts: Mapping[str, Sequence[tuple[str, Slice]]],
        listed: Mapping[str, Path],
        slices_at_once: int,
        duck: Duck,
    ) -> dict[str, list[Path]]:
        # One task per process: DuckDB gives it all threads of the process.
        groups_at_once = min(duck.shares(self._work.tools.processes), slices_at_once)
        in_group = slices_at_once // groups_at_once
        tasks: dict[str, list[NumberNames]] = {}
        for part, named in of_parts.items():
            tasks[part] = []
            for first, last in row_ranges(len(named), in_group):
                pieces = tuple(piece for _, piece in named[first:last])
                name = f"{named[first][0]}-{in_group}"
                found = tuple(rows[part][first:last])
                tasks[part].append(NumberNames(name, found, pieces, self._files.kinds[part], listed, duck))
        every = [task for each in tasks.values() for task in each]
        return _split(self._texts.run("numbered", every, groups_at_once, "numbering"), tasks)

    def _check_count(self, what: str, count: int, called: str) -> None:
        stated, stating = self._files.counts.get(what, (count, ""))
        if stated != count:
            path = {**self._files.parts, **self._files.dictionaries}[what].path
            raise SourceError(f"{path}: has {count} {called}, {stating} says {stated}; correct one of them")

    def _key(self, stage: str) -> str:
        """Text that changes when the outputs of a stage would; names of tasks are not part of it."""
        facts = [f"format {_WORK_FORMAT}, stage {stage}, slices {self._slice_bytes}, ids {self._files.columns.are_ids}"]
        facts += [f"{file.identity}, rows from {file.rows_begin}" for file in self._files.files]
        if stage != "text":
            facts += [
                f"{what}: {list(kind.columns.items())}, {kind.delimiter!r}" for what, kind in self._files.kinds.items()
            ]
        return "\n".join(facts)


class StoredTriples:
    """Column of numbered triples in files of the work folder."""

    dtype: np.dtype[Any] = np.dtype(np.int64)

    def __init__(self, where: str, paths: Sequence[Path], identity: str) -> None:
        self.where = where
        self.identity = identity
        self._counts = {path: count_triples(path) for path in paths}
        self.shape = (sum(self._counts.values()), 3)

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column."""
        for path, count in self._counts.items():
            for start, stop in row_ranges(count, _TRIPLES_PER_BLOCK):
                ids = np.fromfile(path, "<i8", 3 * (stop - start), offset=TRIPLE_BYTES * start)
                if len(ids) != 3 * (stop - start):
                    raise ReadError(
                        f"{path}: ends before byte {TRIPLE_BYTES * stop}; remove {path.parent.parent} and import again"
                    )
                yield ids.reshape(-1, 3)


def _split(paths: Sequence[Path], groups: Mapping[str, Sequence[Any]]) -> dict[str, list[Path]]:
    """Divide the outputs of the tasks of several groups by group, in order."""
    left = iter(paths)
    return {key: [next(left) for _ in group] for key, group in groups.items()}


TRIPLES = SourceKind(
    name="triples",
    looks_like="a folder with train, valid and test of head, relation and tail, or one text of them",
    takes=("columns", "header"),
    detect=is_triples,
    open=Triples,
)
