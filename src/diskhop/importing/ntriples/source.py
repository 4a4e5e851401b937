"""Graphs in N-Triples: .nt files, plain or compressed, or a folder of such."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.name_lines import to_lines
from diskhop.errors import SourceError
from diskhop.importing.estimate import EDGES_PER_NODE, Load
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.ntriples.lines import BYTES_PER_BYTE
from diskhop.importing.ntriples.work import DUCK_BYTES, PARSING, NtWork, local_names, triple_blocks
from diskhop.importing.numbering.ids import count_listed, listed_names
from diskhop.importing.numbering.tasks import read_parquet
from diskhop.importing.options import ImportOptions
from diskhop.importing.source import (
    NameList,
    SourceAttribute,
    SourceEdges,
    SourceGraph,
    SourceKind,
    SourceNodes,
    SourceTriples,
)
from diskhop.importing.source_file import SourceFile, source_errors
from diskhop.importing.text.layout import TextFile
from diskhop.importing.text.packing import packing_of
from diskhop.importing.text.streams import row_bytes, text_bytes, texts_bytes
from diskhop.importing.text.suffixes import text_suffix
from diskhop.importing.tools import ImportLimits, ImportTools
from diskhop.runtime.duck import Duck, require_text_path

_SUFFIX = ".nt"
_NAMES_PER_BLOCK = 1 << 9
_SHOWN = 8


def is_ntriples(source: Path) -> bool:
    """Check whether a file, or a file of a folder, is N-Triples by its name."""
    return bool(_files_of(source))


def _files_of(source: Path) -> list[Path]:
    with source_errors(str(source)):
        paths = sorted(source.iterdir()) if source.is_dir() else [source]
        return [path for path in paths if path.is_file() and text_suffix(path).lower() == _SUFFIX]


class NTriples:
    """Source in N-Triples. Raises SourceError if there are none."""

    def __init__(self, source: Path, options: ImportOptions) -> None:
        paths = _files_of(source) or ([source] if source.is_file() else [])
        if not paths:
            raise SourceError(f"{source}: has no .nt file; give a file of N-Triples, or a folder with some")
        self._files = [_text_file(path) for path in paths]
        self._takes_types = bool(options.node_types)
        self._as_relations = options.predicates == "relations"
        resolved = source.resolve()
        self.name = resolved.name if resolved.is_dir() else resolved.name.partition(".")[0]
        types = "one, 'node'" if not self._takes_types else "rdf:type; of several, the one of most nodes"
        edges = "relations of triples" if self._as_relations else "a type of edges each"
        self.decisions: Sequence[Decision] = [
            Decision("node types", types, "--node-types" if self._takes_types else "without --node-types"),
            Decision("predicates", edges, "--predicates" if options.predicates else "by default"),
            Decision("literals", "numbers: attributes of nodes; text: left out", "the rule for N-Triples"),
        ]

    def least_memory(self, limits: ImportLimits) -> Mapping[str, int]:
        """See Source."""
        longest_bytes = max(text_bytes(file) for file in self._files)
        return {PARSING: DUCK_BYTES + BYTES_PER_BYTE * min(limits.triples_slice_bytes, longest_bytes)}

    @property
    def load(self) -> Load:
        """See Source: unpacked text, and lines as Parquet, twice, are kept."""
        text, unpacked = texts_bytes(self._files)
        num_edges = sum(int(text_bytes(file) / row_bytes(file.path)) for file in self._files)
        return Load(
            source_bytes=sum(file.num_bytes for file in self._files),
            inflated_bytes=unpacked,
            name_text_bytes=text,
            kept_bytes=unpacked + text,
            num_edges=num_edges,
            num_nodes=num_edges // EDGES_PER_NODE,
            name_bytes=text // EDGES_PER_NODE,
        )

    def read(self, work: ImportTools) -> SourceGraph:
        """See Source."""
        require_text_path(work.folder.path)
        done = NtWork(self._files, self._takes_types, self._as_relations, work)
        done.run()
        numbers = [number for number, count in enumerate(done.counts) if count]
        if not numbers:
            raise done.no_triples()
        if self._as_relations and self._takes_types:
            raise SourceError(
                f"{self._files[0].path}: --predicates relations needs nodes of one type; remove --node-types"
            )
        attributes, left_out = _sort_literals(done, work)
        nodes = {
            done.types[number]: SourceNodes(count=done.counts[number], attributes=attributes.get(number, {}))
            for number in numbers
        }
        facts = {"left_out": left_out} if left_out else {}
        if self._as_relations:
            return self._with_relations(nodes, done, work, facts)
        names = {
            ("nodes" if not self._takes_types else f"nodes.{done.types[number]}"): _names(done, number, work)
            for number in numbers
        }
        return SourceGraph(nodes=nodes, edges=self._edges(done, work), names=names, facts=facts)

    def _edges(self, done: NtWork, work: ImportTools) -> dict[str, SourceEdges]:
        predicates = list(dict.fromkeys(group.predicate for group in done.groups))
        name_of = dict(zip(predicates, local_names(predicates), strict=True))
        duck_bytes = max(DUCK_BYTES, work.budget.available_bytes // 2)
        edges = {}
        with work.budget.reserve("numbering edges", duck_bytes), Duck(duck_bytes, 1, work.spill) as duck:
            for number, group in enumerate(done.groups):
                source, destination = done.types[group.source], done.types[group.destination]
                edges[f"{source}__{name_of[group.predicate]}__{destination}"] = SourceEdges(
                    source=source,
                    destination=destination,
                    edges=done.pairs(number, duck),
                    origin=str(self._files[0].path),
                )
        if not edges:
            raise SourceError(f"{self._files[0].path}: has no triples between resources; a graph needs some")
        return edges

    def _with_relations(
        self, nodes: Mapping[str, SourceNodes], done: NtWork, work: ImportTools, facts: Mapping[str, Any]
    ) -> SourceGraph:
        assert done.relations is not None, "they were asked for"
        with Duck(DUCK_BYTES, 1, work.spill) as duck:
            num_relations = count_listed(done.relations, duck)
            num_triples = count_listed(done.edges, duck)
        triples = _Triples(str(self._files[0].path), done.edges, num_triples, done.key("edges"), work)
        names = {
            "entities": _names(done, 0, work),
            "relations": listed_names(done.relations, num_relations, work),
        }
        parts = SourceTriples(parts={"all": triples}, num_relations=num_relations)
        return SourceGraph(nodes=nodes, triples=parts, names=names, facts=facts)


class _Triples:
    """Column of numbered triples (rows, 3)."""

    dtype: np.dtype[Any] = np.dtype(np.int64)

    def __init__(self, where: str, path: Path, count: int, identity: str, work: ImportTools) -> None:
        self.where = where
        self.shape = (count, 3)
        self.identity = identity
        self._path = path
        self._work = work

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column."""
        with self._work.budget.reserve("triples", DUCK_BYTES), Duck(DUCK_BYTES, 1, self._work.spill) as duck:
            yield from triple_blocks(self._path, duck)


class _Numbers:
    """Column of numbers by node that a query gives."""

    dtype: np.dtype[Any] = np.dtype(np.float64)

    def __init__(self, where: str, sql: str, count: int, identity: str, work: ImportTools) -> None:
        self.where = where
        self.shape = (count,)
        self.identity = identity
        self._sql = sql
        self._work = work

    def blocks(self) -> Iterator[NDArray[Any]]:
        """See Column."""
        duck_bytes = max(DUCK_BYTES, self._work.budget.available_bytes // 2)
        with self._work.budget.reserve("literals", duck_bytes), Duck(duck_bytes, 1, self._work.spill) as duck:
            yield from duck.numbers(self._sql)


def _sort_literals(done: NtWork, work: ImportTools) -> tuple[dict[int, dict[str, SourceAttribute]], list[str]]:
    """Return the attributes of each type, and what is left out, for people."""
    attributes: dict[int, dict[str, SourceAttribute]] = {}
    left_out = []
    numbers = [each for each in done.literals if each.are_numbers]
    for each, name in zip(numbers, local_names([each.predicate for each in numbers]), strict=True):
        for number in each.types:
            sql = done.values_sql(number, each.predicate)
            values = _Numbers(each.predicate, sql, done.counts[number], f"{done.key('literals')}\n{sql}", work)
            attributes.setdefault(number, {})[name] = SourceAttribute(
                info=AttributeInfo(dtype="float64"), values=values
            )
        if each.count > each.subjects:
            left_out.append(f"{each.count - each.subjects:,} repeated numbers of {each.predicate} (the first is kept)")
    texts = [each for each in done.literals if not each.are_numbers]
    left_out += [f"{each.count:,} texts of {each.predicate}" for each in texts[:_SHOWN]]
    if len(texts) > _SHOWN:
        left_out.append(
            f"{sum(each.count for each in texts[_SHOWN:]):,} texts of {len(texts) - _SHOWN} more predicates"
        )
    return attributes, left_out


def _names(done: NtWork, number: int, work: ImportTools) -> NameList:
    lines: Callable[[], Iterator[NDArray[np.uint8]]] = partial(_name_lines, done.entities, number, work)
    return NameList(count=done.counts[number], lines=lines, reserved_bytes=work.limits.names_bytes)


def _name_lines(entities: Path, number: int, work: ImportTools) -> Iterator[NDArray[np.uint8]]:
    duck_bytes = max(work.limits.names_bytes, work.budget.available_bytes // 2)
    with work.budget.reserve("names", duck_bytes), Duck(duck_bytes, 1, work.spill) as duck:
        query = f"SELECT name FROM {read_parquet(entities)} WHERE type = {number}"
        for rows in duck.stream(query, _NAMES_PER_BLOCK):
            yield to_lines(name for (name,) in rows)


def _text_file(path: Path) -> TextFile:
    file = SourceFile.of(path)
    return TextFile(file.path, file.num_bytes, file.modified_ns, packing_of(path), 0, None)


NTRIPLES = SourceKind(
    name="ntriples",
    looks_like="a file of N-Triples (.nt, .nt.gz), or a folder of such",
    takes=("predicates", "node_types", "self_loops", "duplicates", "edge_ids", "random_features", "dtype"),
    detect=is_ntriples,
    open=NTriples,
)
