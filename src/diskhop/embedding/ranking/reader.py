"""Reading trained embeddings from disk: some nodes, all nodes in pieces, and queries for ranking."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.partitions.store import PartitionStore
from diskhop.embedding.scoring.pairwise import KINDS, Kind, Similarity
from diskhop.embedding.scoring.scores import Score


class NodePiece(NamedTuple):
    """Embeddings of some nodes.

    places: int64 (nodes), ascending.
    values: embeddings, float32 (nodes, dim).
    """

    places: NDArray[np.int64]
    values: Tensor


class NodeReader(Protocol):
    """The embeddings of all nodes, by place, and what a score compares."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""

    @property
    def dim(self) -> int:
        """Values per node."""

    @property
    def kind(self) -> Similarity:
        """Similarity between queries and nodes."""

    def gather(self, places: NDArray[np.int64]) -> Tensor:
        """Return the embeddings at places, (places, dim)."""

    def pieces(self) -> Iterator[NodePiece]:
        """Yield all nodes, a few MB at a time. A piece is valid until the next one."""

    def queries(self, side: int, given: Tensor, relations: NDArray[np.int64] | None) -> Tensor:
        """Return queries (edges, dim) for destinations (side 0) or sources (side 1). given: of the other ends."""


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingReader:
    """Reads the embeddings of a run.

    store: partitions on disk.
    layout: layout of the partitions.
    score: score function of the run.
    relations: float32 (relations, relation_dim); if reciprocal, inverse relations follow; empty without relations.
    is_reciprocal: whether relations have one embedding per direction.
    """

    store: PartitionStore
    layout: PartitionLayout
    score: Score
    relations: Tensor
    is_reciprocal: bool

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.layout.num_nodes

    @property
    def dim(self) -> int:
        """Values per node."""
        return self.layout.dim

    @property
    def kind(self) -> Kind:
        """Similarity between queries and nodes."""
        return KINDS[self.score.against]

    def gather(self, places: NDArray[np.int64]) -> Tensor:
        """Return the embeddings at places, (places, dim). Reads each partition they are in once. Raises ReadError."""
        partitions, rows = self.layout.locate(places)
        found = np.empty((len(places), self.layout.dim), np.float32)
        for partition in range(self.layout.num_partitions):
            chosen = np.flatnonzero(partitions == partition)
            if len(chosen):
                found[chosen] = self.store.read_rows(partition, rows[chosen])
        return torch.from_numpy(found)

    def pieces(self) -> Iterator[NodePiece]:
        """Yield all nodes, a few MB at a time. A piece is valid until the next one. Raises ReadError."""
        for partition in range(self.layout.num_partitions):
            first, num_rows = self.layout.start(partition), self.layout.num_rows(partition)
            for start, values in self.store.read_pieces(partition):
                kept = values[: max(0, num_rows - start)]
                if len(kept):
                    yield NodePiece(first + start + np.arange(len(kept)), torch.from_numpy(kept))

    def queries(self, side: int, given: Tensor, relations: NDArray[np.int64] | None) -> Tensor:
        """Return queries (edges, dim) for destinations (side 0) or sources (side 1).

        given: embeddings of the edges' other ends, (edges, dim).
        relations: relations of the edges, or None.
        """
        values = self.relations
        if relations is not None and len(values):
            numbers = torch.from_numpy(relations)
            values = values[numbers + len(values) // 2 if side == 1 and self.is_reciprocal else numbers]
        if side == 0 or self.is_reciprocal:
            return self.score.tail_query(given, values)
        return self.score.head_query(given, values)
