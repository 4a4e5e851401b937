"""Hot order is what its one sentence says, at any number of threads, and renumbering loses no edge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import invert_order, order_by_count_int64, order_by_count_uint32
from diskhop.budget import Budget
from diskhop.dataset.edges import ArrayEdges, UndirectedEdges
from diskhop.dataset.sort.hot_order import EDGES_PER_BLOCK, RenumberedEdges, find_hot_order, hot_order_bytes
from diskhop.errors import BudgetError, SourceError
from tests.graphs import random_pairs


def brute_force_order(sources: NDArray[Any], num_nodes: int) -> list[int]:
    """The nodes, most often a source first, ties to the lower id."""
    counts = np.bincount(sources, minlength=num_nodes)
    return sorted(range(num_nodes), key=lambda node: (-counts[node], node))


def new_ids_of(
    pairs: NDArray[Any], num_nodes: int, threads: int, edges_per_block: int = EDGES_PER_BLOCK
) -> NDArray[Any]:
    with find_hot_order(
        ArrayEdges(pairs),
        num_nodes,
        budget=Budget(1 << 30),
        threads=threads,
        origin="x",
        edges_per_block=edges_per_block,
    ) as order:
        np.testing.assert_array_equal(order.new_ids[order.original_ids()], np.arange(num_nodes))
        return order.new_ids.copy()


@given(data=st.data(), dtype=st.sampled_from(["int64", "uint32", "int32", "uint64"]), threads=st.integers(1, 3))
def test_most_often_a_neighbour_first_ties_to_the_lower_id(data: st.DataObject, dtype: str, threads: int) -> None:
    num_nodes = data.draw(st.integers(1, 20))
    edges = data.draw(st.lists(st.tuples(*2 * [st.integers(0, num_nodes - 1)]), max_size=60))
    pairs = np.array(edges, dtype).reshape(-1, 2).T
    new_ids = new_ids_of(pairs, num_nodes, threads)
    assert new_ids.dtype == np.uint32
    assert np.argsort(new_ids).tolist() == brute_force_order(pairs[0].astype(np.int64), num_nodes)


@pytest.mark.parametrize("threads", [1, 2])
def test_hubs_and_many_blocks(threads: int) -> None:
    sources = np.concatenate([np.full(5000, 77), np.random.default_rng(0).integers(0, 3000, 20_000)])
    pairs = np.stack([sources, sources[::-1]])
    assert np.argsort(new_ids_of(pairs, 3000, threads, edges_per_block=1000)).tolist() == brute_force_order(
        sources, 3000
    )


def test_more_than_32_bits_rank_alike() -> None:
    counts = np.random.default_rng(1).integers(0, 5000, 3000)
    expected = np.argsort(-counts, kind="stable")
    for ordered in (
        order_by_count_uint32(counts.astype(np.uint32)),
        order_by_count_uint32(counts + 2**40),
        order_by_count_int64(counts.astype(np.uint32)),
        order_by_count_int64(counts + 2**40),
    ):
        np.testing.assert_array_equal(ordered, expected)


def test_renumbered_edges_are_the_same_edges() -> None:
    pairs = random_pairs(50, 400).astype(np.int32)
    new_ids = new_ids_of(pairs, 50, 1)
    edges = RenumberedEdges(ArrayEdges(pairs), new_ids, "x")
    assert edges.num_edges == 400
    sources, destinations = edges.read(30, 100)
    np.testing.assert_array_equal([sources, destinations], new_ids[pairs[:, 30:130]])


@given(first=st.integers(0, 21), count=st.integers(0, 21))
def test_undirected_edges_come_both_ways_wherever_one_reads(first: int, count: int) -> None:
    pairs = random_pairs(9, 11)
    edges = UndirectedEdges(ArrayEdges(pairs))
    count = min(count, edges.num_edges - first)
    expected = np.stack([pairs, pairs[::-1]], axis=2).reshape(2, -1)
    np.testing.assert_array_equal(edges.read(first, count), expected[:, first : first + count])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("dtype", "value"), [("int64", -1), ("int64", 9), ("uint64", 2**63), ("int64", 2**40)])
def test_an_edge_of_no_node_is_named(threads: int, dtype: str, value: int) -> None:
    pairs = np.zeros((2, 8), dtype)
    pairs[0, 5] = value
    budget = Budget(1 << 30)
    rule = "must be 0 or more;" if value < 0 else "but nodes are numbered 0 to 8;"
    with pytest.raises(SourceError, match=f"^the-list: edge 5 has source {value}, {rule}"):
        find_hot_order(ArrayEdges(pairs), 9, budget=budget, threads=threads, origin="the-list")
    assert budget.available_bytes == 1 << 30
    with pytest.raises(SourceError, match=f"edge 5 has destination {value}"):
        RenumberedEdges(ArrayEdges(pairs[::-1]), np.arange(9, dtype=np.uint32), "x").read(4, 3)


def test_too_small_a_budget_is_refused_before_anything_is_read() -> None:
    class Unreadable(ArrayEdges):
        def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
            raise AssertionError("it was read")

    needed = hot_order_bytes(1_000_000, 10, 2)
    with pytest.raises(BudgetError, match="hot order") as caught:
        find_hot_order(Unreadable(random_pairs(5, 10)), 1_000_000, budget=Budget(needed - 1), threads=2, origin="x")
    assert caught.value.smallest_bytes == needed


def test_threads_that_have_no_block_or_no_room_reserve_nothing() -> None:
    assert hot_order_bytes(50, 400, 64) == hot_order_bytes(50, 400, 1)
    pairs = random_pairs(50, 6400)
    assert hot_order_bytes(50, 6400, 64, 100) > hot_order_bytes(50, 6400, 2, 100)
    budget = Budget(hot_order_bytes(50, 6400, 2, 100))
    with find_hot_order(ArrayEdges(pairs), 50, budget=budget, threads=64, origin="x", edges_per_block=100) as order:
        assert budget.peak_bytes == budget.total_bytes
        assert np.argsort(order.new_ids).tolist() == brute_force_order(pairs[0], 50)


def test_what_is_no_permutation_is_refused() -> None:
    for order in ([0, 0], [0, 2], [-1, 0]):
        with pytest.raises(ValueError, match="id"):
            invert_order(np.array(order))
