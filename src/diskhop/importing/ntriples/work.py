"""Numbers resources by type and the edges between them: queries of DuckDB over the parsed lines, within the budget."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.manifest import NODE, index_dtype
from diskhop.errors import SourceError
from diskhop.importing.ntriples.lines import BYTES_PER_BYTE, ParseTriples
from diskhop.importing.numbering.pairs import PairFile, PairFiles, write_pairs
from diskhop.importing.numbering.tasks import ListIds, read_parquet
from diskhop.importing.text.layout import TextFile
from diskhop.importing.text.work import TextWork
from diskhop.importing.tools import ImportTools
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.duck import Duck, quoted
from diskhop.runtime.tasks import TaskTools

PARSING = "parsing triples"
DUCK_BYTES = 64 << 20
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
UNTYPED = "entity"
# Graphs of more types are stored as triples with relations.
MOST_TYPES = 1024
_WORK_FORMAT = 1
_EDGES_PER_FILE = 1 << 22


@dataclass(frozen=True)
class Query:
    """Write the result of a query as Parquet."""

    name: str
    sql: str
    duck: Duck

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task."""
        self.duck.run(f"COPY ({self.sql}) TO {quoted(path)} (FORMAT parquet)")


@dataclass(frozen=True)
class WritePairs:
    """The pair file of rows first, first + 1, ... of numbered edges."""

    name: str
    edges: Path
    first: int
    count: int
    dtype: str
    duck: Duck

    def write(self, path: Path, tools: TaskTools) -> None:
        """See Task."""
        rows = f"read_parquet({quoted(self.edges)}, file_row_number=true)"
        places, sources, destinations = self.duck.fetch(
            f"SELECT file_row_number - {self.first} AS place, source, destination FROM {rows} "
            f"WHERE file_row_number >= {self.first} AND file_row_number < {self.first + self.count}"
        )
        order = np.argsort(places)
        write_pairs(path, sources[order], destinations[order], self.dtype)


@dataclass(frozen=True, slots=True)
class Group:
    """Edges of one type: rows begin, begin + 1, ... of the numbered edges. source, destination: numbers of types."""

    source: int
    predicate: str
    destination: int
    begin: int
    count: int


@dataclass(frozen=True, slots=True)
class Literals:
    """Literals of one predicate. are_numbers: all of them. types: of nodes that have some, if they are numbers."""

    predicate: str
    count: int
    subjects: int
    are_numbers: bool
    types: tuple[int, ...]


class NtWork:
    """Stages of one import. All results are available after run().

    entities: Parquet (type, id, name), by type and id. edges: Parquet of the numbered edges.
    types: name of each type. counts: nodes of each type.
    """

    entities: Path
    edges: Path
    types: list[str]
    counts: list[int]
    groups: list[Group]
    literals: list[Literals]
    relations: Path | None = None

    def __init__(self, files: Sequence[TextFile], takes_types: bool, as_relations: bool, work: ImportTools) -> None:
        self._takes_types = takes_types
        self._as_relations = as_relations
        self._work = work
        self._files = files
        self._slice_bytes = work.limits.triples_slice_bytes
        self._texts = TextWork(files, work, self.key)
        self._rows = ""
        self._iris: list[str] = []

    def run(self) -> None:
        """Run the unfinished stages. Raises SourceError, with file and line, for a line that breaks a rule."""
        self._texts.unpack()
        slice_bytes = self._texts.slice_bytes(self._slice_bytes)
        with self._work.budget.reserve(PARSING, BYTES_PER_BYTE * slice_bytes):
            tasks = list(self._parsing())
            rows = self._texts.run("rows", tasks, 1, "parsing")
        if not rows:
            raise self.no_triples()
        self._rows = read_parquet(*rows)
        duck_bytes = max(DUCK_BYTES, self._work.budget.available_bytes)
        with (
            self._work.budget.reserve("numbering triples", duck_bytes),
            Duck(duck_bytes, self._work.threads, self._work.spill) as duck,
        ):
            self._number(duck)
        self._texts.require_unchanged()

    def no_triples(self) -> SourceError:
        """Return the error for texts without a triple."""
        return SourceError(f"{self._files[0].path}: has no triples; add one per line")

    def _parsing(self) -> Iterator[ParseTriples]:
        begin = 0
        for number in range(len(self._files)):
            end = 0
            for name, piece in self._texts.slices_of(number, self._slice_bytes):
                yield ParseTriples(name, piece, begin + piece.begin)
                end = piece.end
            begin += end

    def key(self, stage: str) -> str:
        """Return text that changes when the outputs of a stage would."""
        facts = [
            f"format {_WORK_FORMAT}, stage {stage}, slices {self._slice_bytes}",
            *(each.identity for each in self._files),
        ]
        if stage not in ("text", "rows"):
            facts.append(f"types {self._takes_types}, relations {self._as_relations}")
        return "\n".join(facts)

    def pairs(self, number: int, duck: Duck) -> PairFiles:
        """Return the edges of a group."""
        group = self.groups[number]
        dtype = index_dtype(max(self.counts[group.source], self.counts[group.destination]))
        tasks = [
            WritePairs(f"{number:05d}-{first:012d}", self.edges, group.begin + first, end - first, dtype, duck)
            for first, end in row_ranges(group.count, _EDGES_PER_FILE)
        ]
        paths = self._texts.run(f"pairs-{number}", tasks, 1)
        return PairFiles([PairFile.open(path) for path in paths], f"{self.key('pairs')}\n{group}")

    def values_sql(self, type_number: int, predicate: str) -> str:
        """Return SQL of the first number that a predicate gives each node of a type, NaN for none, by id."""
        found = f"SELECT s, arg_min(value, row) AS value FROM {self._rows} WHERE p = {quoted(predicate)} GROUP BY s"
        nodes = f"(SELECT id, name FROM {read_parquet(self.entities)} WHERE type = {type_number})"
        value = "coalesce(v.value, CAST('nan' AS DOUBLE))"
        return f"SELECT {value} FROM {nodes} e LEFT JOIN ({found}) v ON v.s = e.name ORDER BY e.id"

    def _number(self, duck: Duck) -> None:
        self._find_types(duck)
        (self.entities,) = self._texts.run(
            "entities", [Query("entities.parquet", self._entities_sql(), duck)], 1, "listing nodes"
        )
        counts = duck.fetch(f"SELECT type, count(*) AS n FROM {read_parquet(self.entities)} GROUP BY type")
        by_type = dict(zip(*(column.tolist() for column in counts), strict=True))
        self.counts = [by_type.get(number, 0) for number in range(len(self.types))]
        if self._as_relations:
            task = ListIds("relations.parquet", f"(SELECT p FROM {self._rows} WHERE {self._is_edge})", duck, ("p",))
            (self.relations,) = self._texts.run("relations", [task], 1, "listing relations")
        (self.edges,) = self._texts.run(
            "edges", [Query("edges.parquet", self._edges_sql(), duck)], 1, "numbering edges"
        )
        self._find_groups(duck)
        self._find_literals(duck)

    def _find_types(self, duck: Duck) -> None:
        """Number the types, the one of most nodes first. Nodes of no type come last."""
        self.types = [NODE]
        if not self._takes_types:
            return
        is_type = f"p = {quoted(RDF_TYPE)} AND o IS NOT NULL"
        query = f"SELECT o, count(DISTINCT s) AS n FROM {self._rows} WHERE {is_type} GROUP BY o"
        found = duck.fetch(f"{query} ORDER BY n DESC, o LIMIT {MOST_TYPES + 1}")
        self._iris = [str(each) for each in found[0]]
        if not self._iris:
            raise SourceError(f"{self._files[0].path}: no node has an rdf:type; remove --node-types")
        if len(self._iris) > MOST_TYPES:
            raise SourceError(f"{self._files[0].path}: has more than {MOST_TYPES:,} rdf:types; remove --node-types")
        self.types = [*local_names([*self._iris, UNTYPED])]

    @property
    def _is_edge(self) -> str:
        return "o IS NOT NULL" + (f" AND p <> {quoted(RDF_TYPE)}" if self._takes_types else "")

    def _entities_sql(self) -> str:
        ends = f"SELECT s AS name FROM {self._rows} UNION ALL SELECT o FROM {self._rows} WHERE {self._is_edge}"
        names = f"SELECT DISTINCT name FROM ({ends})"
        if not self._takes_types:
            return f"SELECT 0 AS type, row_number() OVER () - 1 AS id, name FROM ({names} ORDER BY name)"
        ranks = ", ".join(f"({number}, {quoted(iri)})" for number, iri in enumerate(self._iris))
        typed = (
            f"SELECT s, min(k.type) AS type FROM {self._rows} r JOIN (VALUES {ranks}) k(type, iri) ON k.iri = r.o "
            f"WHERE p = {quoted(RDF_TYPE)} GROUP BY s"
        )
        kind = f"coalesce(t.type, {len(self._iris)}) AS type"
        known = f"SELECT {kind}, name FROM ({names}) LEFT JOIN ({typed}) t ON t.s = name"
        return (
            f"SELECT type, row_number() OVER (PARTITION BY type ORDER BY name) - 1 AS id, name FROM ({known}) "
            "ORDER BY type, id"
        )

    def _edges_sql(self) -> str:
        nodes = read_parquet(self.entities)
        joined = (
            f"FROM (SELECT * FROM {self._rows} WHERE {self._is_edge}) r JOIN {nodes} s ON s.name = r.s "
            f"JOIN {nodes} d ON d.name = r.o"
        )
        if self.relations is not None:
            joined += f" JOIN {read_parquet(self.relations)} p ON p.name = r.p"
            return f"SELECT s.id AS source, p.id AS relation, d.id AS destination {joined} ORDER BY r.row"
        return (
            f"SELECT s.type AS source_type, r.p AS predicate, d.type AS destination_type, s.id AS source, "
            f"d.id AS destination {joined} ORDER BY predicate, source_type, destination_type, r.row"
        )

    def _find_groups(self, duck: Duck) -> None:
        self.groups = []
        if self.relations is not None:
            return
        columns = "predicate, source_type, destination_type"
        found = duck.fetch(
            f"SELECT {columns}, count(*) AS n FROM {read_parquet(self.edges)} GROUP BY ALL ORDER BY {columns} "
            f"LIMIT {MOST_TYPES + 1}"
        )
        if len(found[0]) > MOST_TYPES:
            raise SourceError(
                f"{self._files[0].path}: predicates make more than {MOST_TYPES:,} types of edges; "
                "import them as relations: --predicates relations"
            )
        begin = 0
        for predicate, source, destination, count in zip(*(column.tolist() for column in found), strict=True):
            self.groups.append(Group(source, predicate, destination, begin, count))
            begin += count

    def _find_literals(self, duck: Duck) -> None:
        found = duck.fetch(
            f"SELECT p, count(*) AS n, count(value) AS numbers, count(DISTINCT s) AS subjects FROM {self._rows} "
            f"WHERE o IS NULL GROUP BY p ORDER BY p"
        )
        of_types = duck.fetch(
            f"SELECT DISTINCT r.p, e.type FROM {self._rows} r JOIN {read_parquet(self.entities)} e ON e.name = r.s "
            "WHERE r.value IS NOT NULL ORDER BY ALL"
        )
        types: dict[str, list[int]] = {}
        for predicate, number in zip(*(column.tolist() for column in of_types), strict=True):
            types.setdefault(predicate, []).append(number)
        self.literals = [
            Literals(predicate, count, subjects, count == numbers, tuple(types.get(predicate, ())))
            for predicate, count, numbers, subjects in zip(*(column.tolist() for column in found), strict=True)
        ]


def local_names(iris: Sequence[str]) -> Iterator[str]:
    """Yield a name for each IRI: its last part, of characters that types and attributes may have, each once."""
    taken: set[str] = set()
    for iri in iris:
        part = re.split(r"[/#:]", iri.rstrip("/#"))[-1]
        name = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_.+=-]", "_", part)).strip("._-=+")[:60] or "x"
        unique, number = name, 1
        while unique in taken:
            number += 1
            unique = f"{name}-{number}"
        taken.add(unique)
        yield unique


def triple_blocks(path: Path, duck: Duck) -> Iterator[NDArray[Any]]:
    """Yield numbered edges with their relations, int64 (rows, 3)."""
    rest = np.empty(0, np.int64)
    for block in duck.numbers(f"SELECT unnest([source, relation, destination]) FROM {read_parquet(path)}"):
        joined = np.concatenate([rest, block.astype(np.int64, copy=False)])
        whole = len(joined) // 3 * 3
        rest = joined[whole:]
        yield joined[:whole].reshape(-1, 3)
