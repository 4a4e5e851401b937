"""Relations that ranks train: what one rank alone changed is kept, and what several changed is their weighted mean."""

from __future__ import annotations

import numpy as np

from diskhop.embedding.step.shared_relations import SharedRelations
from diskhop.embedding.step.step import Table


def test_changes_are_averaged_by_edges_and_squares_add_up() -> None:
    """Rank 0 trains relation 0 with one edge, rank 1 with three; relation 1 is rank 1's alone, relation 2 unused."""
    tables = [Table(np.ones((3, 2), np.float32), np.ones((3, 1), np.float32)) for _ in range(2)]
    ranks = [SharedRelations(table, 3) for table in tables]
    tables[0].values[0] += 4
    tables[1].values[:2] += 8
    tables[0].squares[0] += 1
    tables[1].squares[:2] += 2
    ranks[0].count(np.array([0], np.int32))
    ranks[1].count(np.array([0, 0, 0, 1], np.int32))
    for _ in range(2):
        changes = [rank.changes() for rank in ranks]
        for rank in ranks:
            rank.combine(changes)
        for table in tables:
            np.testing.assert_array_equal(table.values, [[8, 8], [9, 9], [1, 1]])
            np.testing.assert_array_equal(table.squares, [[4], [3], [1]])


def test_both_directions_of_a_relation_have_its_edges() -> None:
    table = Table(np.zeros((4, 1), np.float32), np.zeros((4, 1), np.float32))
    rank = SharedRelations(table, 2)
    rank.count(np.array([1, 1, 0], np.int32))
    assert rank.changes().num_edges.tolist() == [1, 2, 1, 2]
