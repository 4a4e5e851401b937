"""A graph on its way into a dataset: what every kind of source becomes, and what write_graph takes.

In the order of things: a *source* is looked at (without reading much), tells what it will take, and is *read* with the
help of a workshop, which may mean hours of unpacking and parsing into the work folder; the graph that comes out can
then be read front to back, within the budget, by who writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.build.feature_ranges import Values
from diskhop.dataset.edges import EdgeSource
from diskhop.importing.estimate import Load
from diskhop.importing.options import ImportOptions
from diskhop.importing.tools import ImportLimits, ImportTools

# A count of nodes that nothing tells but edges: their highest id + 1.
BY_EDGES = -1


class Column(Values, Protocol):
    """Values of nodes, or ids: (rows) or (rows, columns), read front to back as often as asked."""

    @property
    def where(self) -> str:
        """File (and member), for errors."""


class OriginalNames(Protocol):
    """What nodes were called before they were numbered; a context, and it can be asked only within."""

    @property
    def reserved_bytes(self) -> int:
        """Reserved while it is entered."""

    @property
    def selecting_bytes(self) -> int:
        """Reserved more, once it is asked for some nodes."""

    def range(self, start: int, stop: int) -> NDArray[Any]:
        """The original ids of nodes start to stop - 1."""

    def select(self, nodes: NDArray[Any]) -> NDArray[Any]:
        """The original ids of some nodes."""

    def __enter__(self) -> OriginalNames: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NameList:
    """Names by id, from 0: `count` UTF-8 lines, in blocks of bytes. held_bytes: reserved while they are read."""

    count: int
    lines: Callable[[], Iterator[NDArray[np.uint8]]]
    reserved_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNodes:
    """Nodes of one type. count: may be BY_EDGES. splits: for each part, the ids of each split.

    called: None where ids are as they were.
    feature_dtype: what features are stored as unless the user says; None: as the column's dtype suggests.
    """

    count: int
    features: Column | None = None
    feature_dtype: str | None = None
    labels: Column | None = None
    num_classes: int | None = None
    splits: Mapping[str, Sequence[Column]] = field(default_factory=dict)
    original: OriginalNames | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEdges:
    """Edges of one type, between two types of nodes. origin: for errors. weights, times: one a row, by edge number."""

    source: str
    destination: str
    edges: EdgeSource
    origin: str
    weights: Column | None = None
    times: Column | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTriples:
    """(source, relation, destination) by part: train, valid, test, or all. num_relations None: highest + 1."""

    parts: Mapping[str, Column]
    num_relations: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceGraph:
    """All of it, by type. triples: between nodes of the first type. facts: what only the import knows, for people.

    counts_repeats: they shall also have loops and duplicates, which takes a look at every edge.
    """

    nodes: Mapping[str, SourceNodes]
    edges: Mapping[str, SourceEdges] = field(default_factory=dict)
    triples: SourceTriples | None = None
    names: Mapping[str, NameList] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    counts_repeats: bool = False


class Source(Protocol):
    """What looking at a source found. Raises SourceError where it is made for what cannot be imported at all."""

    @property
    def name(self) -> str:
        """What the dataset is called unless someone says."""

    @property
    def load(self) -> Load:
        """What there is to bring in, from which the import's disk space and time are estimated."""

    def least_memory(self, limits: ImportLimits) -> Mapping[str, int]:
        """Return the smallest memory that reading reserves, by name."""

    def read(self, work: ImportTools) -> SourceGraph:
        """Unpack, parse and number the source into the work folder, and return the graph.

        Raises SourceError for a source that breaks a rule, BudgetError, DestinationError.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """A kind of source that `diskhop import` knows. Each is defined at the end of its file and listed in SOURCES.

    name: the value of --format.
    looks_like: description for errors, beginning with an article.
    takes: names of the ImportOptions that apply.
    detect: whether a file or folder looks like this kind; it may raise SourceError.
    open: looks at a file or folder without reading much. Raises SourceError, ConfigError.
    """

    name: str
    looks_like: str
    takes: tuple[str, ...]
    detect: Callable[[Path], bool]
    open: Callable[[Path, ImportOptions], Source]
