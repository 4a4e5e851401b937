"""Changes of a graph: nodes and edges of a delta, by the rows of the dataset that it updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from diskhop.errors import SourceError
from diskhop.importing.evidence.decisions import Decision
from diskhop.importing.source import Column, SourceAttribute
from diskhop.importing.tools import ImportTools

WEIGHTS, TIMES = "weights", "times"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeltaEdges:
    """Edges to add or to remove, in the order of the delta.

    sources, destinations: int64 (edges), rows of the nodes at their ends.
    columns: values of edges to add by WEIGHTS, TIMES, or the name of an attribute.
    unknown: returns the error for an edge to remove, by its place in the delta, that the graph does not have.
    """

    sources: NDArray[np.int64]
    destinations: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    unknown: Callable[[int], SourceError] = lambda edge: SourceError(f"edge {edge} to remove is not in the graph")

    def __len__(self) -> int:
        return len(self.sources)


NO_EDGES = DeltaEdges(sources=np.empty(0, np.int64), destinations=np.empty(0, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeltaNodes:
    """Nodes to add or to change, in the order of the delta.

    rows: int64 (nodes), row of each in the dataset; new nodes come behind all others, in this order.
    num_new: number of new nodes.
    ids: int64 (new nodes), their ids; None: they have names.
    names: their names; None: they have none.
    features, labels: values of all these nodes; None: nodes keep what they have, new ones have no label.
    splits: by part, the places in the delta of the nodes in each split; None: nodes stay in their parts.
    attributes: values by name.
    """

    rows: NDArray[np.int64]
    num_new: int
    ids: NDArray[np.int64] | None = None
    names: Sequence[str] | None = None
    features: Column | None = None
    labels: Column | None = None
    splits: Mapping[str, Sequence[Column]] | None = None
    attributes: Mapping[str, SourceAttribute] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def are_new(self) -> NDArray[np.bool_]:
        """Whether each node is new."""
        is_new: NDArray[np.bool_] = self.rows >= self.rows.max(initial=-1) + 1 - self.num_new
        return is_new if self.num_new else np.zeros(len(self), np.bool_)


NO_NODES = DeltaNodes(rows=np.empty(0, np.int64), num_new=0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Delta:
    """Nodes and edges that change."""

    nodes: DeltaNodes = NO_NODES
    added: DeltaEdges = NO_EDGES
    removed: DeltaEdges = NO_EDGES


class DeltaSource(Protocol):
    """An opened delta. Making one raises SourceError for what does not fit the dataset, as far as columns tell."""

    @property
    def decisions(self) -> Sequence[Decision]:
        """Decisions about files and columns, for people."""

    @property
    def num_bytes(self) -> int:
        """Bytes of the files."""

    @property
    def num_added(self) -> int:
        """Number of edges to add, or an estimate of it."""

    @property
    def num_removed(self) -> int:
        """Number of edges to remove, or an estimate of it."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes to add or to change, or an estimate of it."""

    def read(self, work: ImportTools) -> Delta:
        """Read the delta into memory, which stays reserved until `work.held` closes; features stay on disk.

        Raises SourceError for a value that breaks a rule, BudgetError.
        """
