"""Relations that several ranks train: each trains its own copy, and from time to time all take the same combination.

A rank trains relations with the edges of its buckets alone. When the ranks combine their copies, a relation's embedding
changes by the mean of what the ranks changed, weighted by the edges that each trained with it. A rank without such
edges has no say. Adagrad's sums of squares add up, as if one process had taken all steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.embedding.step.step import Table


class RelationChanges(NamedTuple):
    """Changes that one rank made to the relations since all ranks had the same.

    values: change of the embeddings, float32 (rows, dim).
    squares: change of the sums of squares, float32 (rows, state_dim).
    num_edges: edges trained with each row, int64 (rows).
    """

    values: NDArray[np.float32]
    squares: NDArray[np.float32]
    num_edges: NDArray[np.int64]


class SharedRelations:
    """A rank's copy of the relations. table: the copy, which a Step trains in place.

    num_relations: number of relations; a table with twice as many rows has both directions of each.
    """

    def __init__(self, table: Table, num_relations: int) -> None:
        self._table = table
        self._num_relations = num_relations
        self._num_edges = np.zeros(num_relations, np.int64)
        self.keep()

    def keep(self) -> None:
        """Take the table as what all ranks have now."""
        self._values, self._squares = self._table.values.copy(), self._table.squares.copy()
        self._num_edges[:] = 0

    def count(self, relations: NDArray[np.int32]) -> None:
        """Count edges that were trained. relations: int32 (edges)."""
        self._num_edges += np.bincount(relations, minlength=self._num_relations)

    def changes(self) -> RelationChanges:
        """Return the changes of this rank."""
        num_edges = np.tile(self._num_edges, len(self._values) // self._num_relations)
        return RelationChanges(self._table.values - self._values, self._table.squares - self._squares, num_edges)

    def combine(self, by_rank: Sequence[RelationChanges]) -> None:
        """Change the table by what all ranks did, added up in their order."""
        total = np.maximum(1, np.sum([each.num_edges for each in by_rank], 0))
        for each in by_rank:
            weights = (each.num_edges / total).astype(np.float32)[:, None]
            self._values += weights * each.values
            self._squares += each.squares
        self._table.values[:], self._table.squares[:] = self._values, self._squares
        self.keep()
