"""Trained embeddings as they lie on the disk: some of them, all of them piece by piece, and what asks for others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.embedding.partitions.layout import PartitionLayout
from diskhop.embedding.partitions.store import PartitionStore
from diskhop.embedding.scoring.pairwise import KINDS, Kind
from diskhop.embedding.scoring.scores import Score


class NodePiece(NamedTuple):
    """Some nodes: their places, int64 ascending, and embeddings, float32 (nodes, dim)."""

    places: NDArray[np.int64]
    values: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingReader:
    """relations: float32 (relations, dim), or twice as many, those for the other direction last; empty without any."""

    store: PartitionStore
    layout: PartitionLayout
    score: Score
    relations: Tensor
    is_reciprocal: bool

    @property
    def kind(self) -> Kind:
        """How queries meet nodes."""
        return KINDS[self.score.against]

    def gather(self, places: NDArray[np.int64]) -> Tensor:
        """(places, dim); every partition that is needed is read once. Raises ReadError."""
        partitions, rows = self.layout.locate(places)
        found = np.empty((len(places), self.layout.dim), np.float32)
        for partition in range(self.layout.num_partitions):
            chosen = np.flatnonzero(partitions == partition)
            if len(chosen):
                found[chosen] = self.store.read_rows(partition, rows[chosen])
        return torch.from_numpy(found)

    def pieces(self) -> Iterator[NodePiece]:
        """All nodes, a few MB at a time, which are good until the next. Raises ReadError."""
        for partition in range(self.layout.num_partitions):
            first, num_rows = self.layout.start(partition), self.layout.num_rows(partition)
            for start, values in self.store.read_pieces(partition):
                kept = values[: max(0, num_rows - start)]
                if len(kept):
                    yield NodePiece(first + start + np.arange(len(kept)), torch.from_numpy(kept))

    def queries(self, side: int, asked: Tensor, relations: NDArray[np.int64] | None) -> Tensor:
        """(edges, dim): what destinations (side 0) or sources (1) are scored against. asked: the other end's."""
        values = self.relations
        if relations is not None and len(values):
            numbers = torch.from_numpy(relations)
            values = values[numbers + len(values) // 2 if side == 1 and self.is_reciprocal else numbers]
        if side == 0 or self.is_reciprocal:
            return self.score.tail_query(asked, values)
        return self.score.head_query(asked, values)
