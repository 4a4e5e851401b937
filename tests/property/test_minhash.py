"""The MinHash order against its definition, and against no order on random traces."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop._native import keyed_permutation
from diskhop.policies.minhash import NEVER_NEEDED, min_hashes, minhash_order
from diskhop.protocols import NodeIds, Purpose

NUM_ROWS = 9
SEEDS = st.integers(0, 2**64 - 1)
ROWS_PER_PAGE = 8


def traces() -> st.SearchStrategy[list[NodeIds]]:
    batch = st.lists(st.integers(0, NUM_ROWS - 1), unique=True, max_size=NUM_ROWS)
    return st.lists(batch.map(lambda rows: np.array(rows, np.int64)), max_size=8)


def askers(batches: list[NodeIds], row: int) -> frozenset[int]:
    return frozenset(number for number, batch in enumerate(batches) if row in batch)


@given(traces(), st.integers(0, 3), SEEDS)
def test_a_hash_is_the_earliest_place_of_a_batch_that_asks(batches: list[NodeIds], num_hashes: int, seed: int) -> None:
    hashes = min_hashes(batches, NUM_ROWS, num_hashes, seed)
    assert hashes.shape == (num_hashes, NUM_ROWS)
    assert hashes.dtype == np.uint32
    for number in range(num_hashes):
        order = keyed_permutation(len(batches), seed, int(Purpose.TRAIN), number).tolist()
        for row in range(NUM_ROWS):
            places = [order.index(asker) for asker in askers(batches, row)]
            assert hashes[number, row] == min(places, default=NEVER_NEEDED)


@given(traces(), SEEDS)
def test_the_order_is_a_sort_by_two_hashes_and_the_id(batches: list[NodeIds], seed: int) -> None:
    first, second = min_hashes(batches, NUM_ROWS, seed=seed).tolist()
    order = minhash_order(batches, NUM_ROWS, seed)
    assert order.dtype == np.int64
    assert order.tolist() == sorted(range(NUM_ROWS), key=lambda row: (first[row], second[row], row))
    np.testing.assert_array_equal(order, minhash_order(batches, NUM_ROWS, seed))


@given(st.lists(st.sampled_from([1, 2, 4, 8]), max_size=40), SEEDS)
def test_rows_of_the_same_one_batch_lie_together(batch_of: list[int], seed: int) -> None:
    """Sets that share no batch never share a hash, so that nothing comes between the rows of one."""
    batches = [np.flatnonzero(np.array(batch_of, np.int64) == batch) for batch in range(9)]
    runs = [batch for batch, _ in groupby(batch_of[row] for row in minhash_order(batches, len(batch_of), seed))]
    assert len(runs) == len(set(batch_of))


def pages_read(batches: list[NodeIds], order: NodeIds) -> int:
    places = np.argsort(order)
    return sum(len(np.unique(places[batch] // ROWS_PER_PAGE)) for batch in batches)


@pytest.mark.parametrize(("share", "most_of_id_order"), [(0.02, 0.6), (0.1, 0.9)])
def test_batches_of_random_rows_take_fewer_pages(share: float, most_of_id_order: float) -> None:
    generator = np.random.default_rng(0)
    batches = [np.flatnonzero(generator.random(8000) < share) for _ in range(50)]
    ordered = pages_read(batches, minhash_order(batches, 8000))
    assert ordered < most_of_id_order * pages_read(batches, np.arange(8000))


def test_hashes_differ_from_seed_to_seed_and_from_each_other() -> None:
    batches = [np.array([row]) for row in range(100)]
    hashes = np.concatenate([min_hashes(batches, 100, seed=seed) for seed in (0, 1)])
    assert len(np.unique(hashes, axis=0)) == 4
