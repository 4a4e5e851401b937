"""Streamed networks equal one pass by PyG over the whole graph, and their bytes depend on nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.errors import BudgetError, PredictionError
from diskhop.planning.predict import StreamedPlan
from tests.batched import assert_close, build_graph, stored_features
from tests.examples import examples
from tests.graphs import memory_folder
from tests.streamed_networks import build_network, sparse_graph, streamed, whole_graph

MODELS = ["sage", "gcn", "gat"]


@st.composite
def graphs(draw: Any) -> tuple[Any, Any, str]:
    """Edges with loops, repeats, isolated nodes and perhaps a hub of half of the edges; features; and their dtype."""
    num_nodes = draw(st.sampled_from([1, 2, 9, 40]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    pairs = rng.integers(0, num_nodes, (2, draw(st.integers(0, 200))))
    if draw(st.booleans()):
        pairs[1, ::2] = rng.integers(num_nodes)
    if draw(st.booleans()):
        pairs[0, ::5] = pairs[1, ::5]
    features = rng.normal(size=(num_nodes, draw(st.sampled_from([1, 5, 30])))).astype(np.float32)
    return pairs, features, draw(st.sampled_from(["float32", "float16", "bfloat16", "int8"]))


@pytest.mark.fast(2)
@pytest.mark.parametrize("model", MODELS)
@examples(25)
@given(
    graph=graphs(),
    norm=st.sampled_from(["none", "layer", "batch"]),
    way_around=st.sampled_from(["none", "residual", "self_term"]),
    normalize=st.booleans(),
    is_hot=st.booleans(),
)
def test_networks_equal_one_pass_over_the_graph(
    model: str, graph: tuple[Any, Any, str], norm: str, way_around: str, normalize: bool, is_hot: bool
) -> None:
    pairs, features, dtype = graph
    features = np.abs(features) if normalize else features
    if way_around == "self_term" and model == "sage":
        way_around = "residual"  # a layer of sage has its self-term
    ways = {} if way_around == "none" else {way_around: True}
    network = build_network(model, features.shape[1], 4, norm=norm, normalize_input=normalize, **ways)
    order = np.random.default_rng(1).permutation(len(features)) if is_hot else None
    with memory_folder(Path(tempfile.gettempdir())) as folder:
        dataset = build_graph(folder / "graph", pairs, features, dtype=dtype, order=order)
        stored = dataset.id_map().in_source_order(stored_features(dataset))
        found = streamed(dataset, network, folder / "work", wanted=(1, 2, 3))
        expected = whole_graph(network, stored, pairs)
        for number, rows in found.items():
            assert_close(dataset.id_map().in_source_order(rows), expected[number - 1])


@pytest.mark.fast("sage")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("heads", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_bytes_are_the_same_for_any_memory_and_threads(tmp_path: Path, model: str, heads: int) -> None:
    """The memory goes from a twentieth of the hidden table to all of it."""
    rng = np.random.default_rng(0)
    num_nodes, hidden = 9000, 512
    pairs = rng.integers(0, num_nodes, (2, 22_000))
    pairs[1, ::2] = 17  # a hub with half of the edges
    pairs[0, ::7] = pairs[1, ::7]
    features = rng.normal(size=(num_nodes, 20)).astype(np.float32)
    network = build_network(model, 20, 6, layers=2, hidden=hidden, heads=heads)
    table_bytes = 4 * num_nodes * hidden
    found, plans = [], list[StreamedPlan]()
    with memory_folder(tmp_path) as folder:
        dataset = build_graph(folder / "graph", pairs, features)
        for share, threads in ((20, 1), (6, 2), (0.1, 2)):
            memory_bytes = int(table_bytes / share)
            rows = streamed(
                dataset,
                network,
                folder / "work",
                wanted=(1, 2),
                memory_bytes=memory_bytes,
                threads=threads,
                plans=plans,
            )
            found.append(np.concatenate([rows[1], rows[2]], axis=1))
        expected = whole_graph(network, features.astype(np.float64), pairs)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    assert_close(found[0][:, hidden:], expected[-1])
    blocks = [tuple(layer.num_blocks for layer in plan.layers) for plan in plans]
    assert blocks[0] > blocks[-1]
    assert all(layer.num_blocks == 1 for layer in plans[-1].layers)
    assert len({plan.product_rows for plan in plans}) == 1


def test_rows_without_edges_and_the_first_block_are_not_stored(tmp_path: Path) -> None:
    """Where parts are groups, and where memory has room for the block: the bytes are those of all in memory."""
    network, plans = build_network("sage", 16, 6, layers=2, hidden=16, norm="none"), list[StreamedPlan]()
    with memory_folder(tmp_path) as folder:
        dataset, pairs, features = sparse_graph(folder)
        expected = streamed(dataset, network, folder / "work", wanted=(1, 2))
        for memory_bytes in (5_000_000, 2_500_000, 1 << 26):
            found = streamed(
                dataset, network, folder / "work", wanted=(1, 2), memory_bytes=memory_bytes, plans=plans, threads=2
            )
            for number, rows in found.items():
                np.testing.assert_array_equal(rows, expected[number])
        for rows, layer in zip(
            expected.values(), whole_graph(network, features.astype(np.float64), pairs), strict=True
        ):
            assert_close(rows, layer)
    assert [plan.layers[0].sums_lack_rows for plan in plans] == [True, False, True]
    assert [plan.stores_first_block for plan in plans] == [False, False, True]
    assert all(plan.own_are_features for plan in plans)


def test_features_of_nodes_that_are_no_neighbours_must_be_finite(tmp_path: Path) -> None:
    network = build_network("sage", 3, 4)
    with memory_folder(tmp_path) as folder:
        dataset = build_graph(folder / "graph", np.array([[0, 1], [5, 39]]), np.ones((40, 3), np.float32))
        table = dataset.feature_table()
        assert table is not None
        values = np.memmap(table.path, np.float32, "r+")  # an import would refuse it
        values[-1] = np.inf
        values.flush()
        with pytest.raises(PredictionError, match="the features for node 39 has NaN or infinite values"):
            streamed(dataset, network, folder / "work")


def test_too_little_memory_says_how_much_is_needed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(500, 30)).astype(np.float32)
    network = build_network("sage", 30, 4)
    with memory_folder(tmp_path) as folder:
        dataset = build_graph(folder / "graph", rng.integers(0, 500, (2, 900)), features)
        with pytest.raises(BudgetError, match="the smallest that works") as refused:
            streamed(dataset, network, folder / "work", memory_bytes=20_000)
        assert "--memory 1MB" in str(refused.value)
        streamed(dataset, network, folder / "work", memory_bytes=1_000_000)
