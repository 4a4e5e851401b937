"""Batches of consecutive rows: their cuts, and bounds that hold for every batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.budget import Budget
from diskhop.config.sampled import ALL_NEIGHBORS
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError
from diskhop.predicting.batched.row_batches import RowBatches, cut_batches, most_entries
from tests.batched import build_graph
from tests.examples import examples
from tests.graphs import edges_of, skewed_pairs

NUM_NODES, HUB = 80, 17


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    pairs = skewed_pairs(NUM_NODES, 600)
    pairs[1, :200] = HUB
    return build_graph(tmp_path_factory.mktemp("batches") / "graph", pairs, None, num_nodes=NUM_NODES)


def cut(dataset: Dataset, fanout: int, entries: int, range_rows: int) -> RowBatches:
    return cut_batches(dataset.topology, fanout, entries, range_rows, Budget(10_000_000))


@examples(40)
@given(
    fanout=st.sampled_from([ALL_NEIGHBORS, 1, 4]),
    entries=st.integers(1, 300),
    range_rows=st.sampled_from([1, 13, 80, 1000]),
)
def test_batches_follow_each_other_and_their_bounds_hold(
    dataset: Dataset, fanout: int, entries: int, range_rows: int
) -> None:
    batches = cut(dataset, fanout, entries, range_rows)
    assert batches.starts[0] == 0
    assert batches.starts[-1] == NUM_NODES
    assert (batches.num_rows > 0).all()
    assert set(range(0, NUM_NODES, range_rows)) <= set(batches.starts.tolist())
    edges = edges_of(dataset)
    lengths = np.bincount([target for _, target in edges], minlength=NUM_NODES)
    drawn = lengths if fanout == ALL_NEIGHBORS else np.minimum(lengths, fanout)
    for number, (first, end) in enumerate(zip(batches.starts[:-1], batches.starts[1:], strict=True)):
        assert batches.num_edges[number] == drawn[first:end].sum()
        assert end == first + 1 or batches.num_edges[number] + end - first <= entries
        sources = {*range(first, end), *(source for source, target in edges if first <= target < end)}
        if fanout == ALL_NEIGHBORS:
            assert len(sources) <= batches.most_sources[number] <= NUM_NODES
        else:
            assert batches.most_sources[number] == min(batches.num_edges[number] + end - first, NUM_NODES)


def test_the_nodes_of_a_long_list_are_counted(dataset: Dataset) -> None:
    batches = cut(dataset, ALL_NEIGHBORS, 100, 1000)
    number = int(np.flatnonzero(batches.starts == HUB)[0])
    sources = {source for source, target in edges_of(dataset) if target == HUB} | {HUB}
    assert batches.num_edges[number] >= 200
    assert batches.most_sources[number] == len(sources) < NUM_NODES
    with pytest.raises(BudgetError, match="counting neighbours"):
        cut_batches(dataset.topology, ALL_NEIGHBORS, 100, 1000, Budget(1000))


def test_ranges_have_the_batches_between_their_bounds(dataset: Dataset) -> None:
    batches = cut(dataset, ALL_NEIGHBORS, 30, 20)
    numbers = [batches.numbers(first, first + 20) for first in range(0, NUM_NODES, 20)]
    assert [number for each in numbers for number in each] == list(range(len(batches)))


def test_wide_rows_make_small_batches() -> None:
    assert [most_entries(dim) for dim in (1, 64, 256, 1 << 20)] == [1 << 16, 1 << 16, 1 << 14, 256]
