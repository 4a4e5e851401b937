"""Interfaces of an import: kinds of source, opened sources, and the graph that every source becomes.

A SourceKind *opens* a file or folder without reading much. The Source states its load, from which the import is
estimated. It is then *read* with ImportTools, which may mean hours of unpacking and parsing into the work folder. The
SourceGraph that comes out is streamed within the budget by write_graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.adj_info import AdjInfo
from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.build.feature_ranges import Values
from diskhop.dataset.edges import EdgeSource
from diskhop.importing.estimate import Load
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.options import ImportOptions
from diskhop.importing.tools import ImportLimits, ImportTools

# Node count of a source that does not state it: the highest id in the edges + 1.
BY_EDGES = -1


class Column(Values, Protocol):
    """Values of nodes, or ids: (rows) or (rows, columns), which can be streamed any number of times."""

    @property
    def where(self) -> str:
        """File (and archive member), for errors."""


class OriginalNames(Protocol):
    """Ids that nodes had before they were numbered. A context manager: ids can be read only inside."""

    @property
    def ascend(self) -> bool:
        """Whether ids ascend with the numbers of the nodes."""

    @property
    def reserved_bytes(self) -> int:
        """Bytes that are reserved while the context is open."""

    @property
    def selecting_bytes(self) -> int:
        """Additional bytes that are reserved at the first call of select."""

    def range(self, start: int, stop: int) -> NDArray[Any]:
        """Return the original ids of nodes start to stop - 1."""

    def select(self, nodes: NDArray[Any]) -> NDArray[Any]:
        """Return the original ids of some nodes."""

    def __enter__(self) -> OriginalNames: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NameList:
    """Names of ids 0 to count - 1.

    count: number of names.
    lines: opens the names as lines (see dataset/name_lines.py), in blocks of bytes.
    reserved_bytes: memory that is reserved while they are read.
    """

    count: int
    lines: Callable[[], Iterator[NDArray[np.uint8]]]
    reserved_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAttribute:
    """An attribute of nodes or edges.

    info: dtype and shape of its values.
    values: the values by node or edge number, in NumPy's dtype for them; None: it is stored as another column.
    """

    info: AttributeInfo
    values: Column | None = None

    @property
    def row_bytes(self) -> int:
        """Bytes that a node or edge takes on disk."""
        return 0 if self.values is None else self.info.row_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNodes:
    """Nodes of one type.

    count: number of nodes, or BY_EDGES.
    features: values (nodes, dim).
    feature_dtype: dtype in which features are stored without --dtype; None: as the column's dtype suggests.
    labels: classes (nodes) or tasks (nodes, tasks).
    num_classes: number of classes, if the source states it.
    splits: by part (train, valid, test), the ids of each split.
    original: ids that the nodes had in the source; None: the same.
    attributes: further values of nodes, and other names, dtypes and shapes of features and labels.
    states_count: whether the source has the number of nodes as a value of its own.
    """

    count: int
    features: Column | None = None
    feature_dtype: str | None = None
    labels: Column | None = None
    num_classes: int | None = None
    splits: Mapping[str, Sequence[Column]] = field(default_factory=dict)
    original: OriginalNames | None = None
    attributes: Mapping[str, SourceAttribute] = field(default_factory=dict)
    states_count: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEdges:
    """Edges of one type.

    source, destination: types of the nodes at their ends.
    edges: pairs of ids.
    origin: file, for errors.
    weights, times: one value per edge, by edge number.
    edge_ids: number of each edge in the source that this one was exported from; None: the edge number.
    attributes: further values of edges, and other names, dtypes and shapes of weights and times.
    adj_t: the sparse matrix that the source has them as; None: they are pairs of ids.
    has_more: whether edges have values that are not imported, which users look up by the edge number.
    """

    source: str
    destination: str
    edges: EdgeSource
    origin: str
    weights: Column | None = None
    times: Column | None = None
    edge_ids: Column | None = None
    attributes: Mapping[str, SourceAttribute] = field(default_factory=dict)
    adj_t: AdjInfo | None = None
    has_more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTriples:
    """Triples of a knowledge graph.

    parts: triples (rows, 3) of source, relation and destination by part: train, valid, test, or all.
    num_relations: number of relations; None: the highest + 1.
    """

    parts: Mapping[str, Column]
    num_relations: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceGraph:
    """A graph, ready to be written.

    nodes: by node type.
    edges: by edge type.
    triples: between nodes of the first type.
    names: names of nodes, entities or relations.
    facts: facts that only the import knows, for people.
    is_mirrored: whether edges are stored in both directions unless options say otherwise.
    counts_repeats: whether facts also get counts of loops and duplicates, which takes a pass over all edges.
    """

    nodes: Mapping[str, SourceNodes]
    edges: Mapping[str, SourceEdges] = field(default_factory=dict)
    triples: SourceTriples | None = None
    names: Mapping[str, NameList] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    is_mirrored: bool = False
    counts_repeats: bool = False


class Source(Protocol):
    """An opened source. Making one raises SourceError if it cannot be imported at all."""

    @property
    def decisions(self) -> Sequence[Decision]:
        """Decisions from evidence about the source, for people; empty: the format leaves no choice."""

    @property
    def name(self) -> str:
        """Default name of the dataset."""

    @property
    def load(self) -> Load:
        """The amount of work, from which disk space and time are estimated."""

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
    instead: name of the kind that takes the same files, and other options.
    """

    name: str
    looks_like: str
    takes: tuple[str, ...]
    detect: Callable[[Path], bool]
    open: Callable[[Path, ImportOptions], Source]
    instead: str | None = None
