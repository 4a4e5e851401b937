"""Hop tables are what dense float64 products say, for every operator and direction, whatever the graph."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.config.hop import DIRECTIONS
from diskhop.hops.operators import OPERATORS
from tests.examples import examples
from tests.graphs import folder_bytes, memory_folder, random_pairs, skewed_pairs
from tests.propagation import build, dense_tables, propagate_small, table_values

ALL = (*OPERATORS, "ppr:alpha=0.5", "heat:t=0.5")


@st.composite
def graphs(draw: Any) -> tuple[Any, Any]:
    """Edges with loops, repeats and isolated nodes among them, and features."""
    num_nodes = draw(st.integers(1, 9))
    ids = st.integers(0, num_nodes - 1)
    pairs = draw(st.lists(st.tuples(ids, ids), min_size=1, max_size=30))
    dim = draw(st.sampled_from([1, 4, 5, 8]))
    seed = draw(st.integers(0, 9))
    features = np.random.default_rng(seed).normal(size=(num_nodes, dim)).astype(np.float32)
    return np.array(pairs, np.int64).T, features


@pytest.mark.fast(2)
@pytest.mark.parametrize("direction", DIRECTIONS)
@examples(15)
@given(graph=graphs())
def test_tables_equal_dense_products(direction: str, graph: tuple[Any, Any]) -> None:
    pairs, features = graph
    with memory_folder(Path(tempfile.gettempdir())) as folder:
        dataset = build(folder / "graph", pairs, features)
        tables = propagate_small(dataset, folder / "s", operators=ALL, hops=3, direction=direction).tables
        np.testing.assert_array_equal(table_values(tables, 0), features)
        for number, operator in enumerate(ALL):
            expected = dense_tables(pairs, features, operator, 3, direction)
            for hop in range(3):
                actual = table_values(tables, 1 + 3 * number + hop)
                np.testing.assert_allclose(actual, expected[hop], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_kept_rows_are_those_of_all_rows(tmp_path: Path, dtype: str) -> None:
    pairs = random_pairs(5000, 30_000)
    features = np.random.default_rng(0).normal(size=(5000, 7)).astype(np.float32)
    dataset = build(tmp_path / "graph", pairs, features)
    options: dict[str, Any] = {"operators": ("sgc", "heat"), "hops": 2, "dtype": dtype}
    every = propagate_small(dataset, tmp_path / "s", **options).tables
    some = propagate_small(dataset, tmp_path / "s", **options, rows="labelled").tables
    assert some.rows is not None
    np.testing.assert_array_equal(some.rows, np.arange(0, 5000, 3))
    for number in range(5):
        np.testing.assert_array_equal(table_values(some, number), table_values(every, number)[::3])
    if dtype == "float32":
        expected = dense_tables(pairs, features, "heat", 2, "in")
        np.testing.assert_allclose(table_values(every, 4), expected[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stored", ["float16", "bfloat16", "int8"])
def test_features_of_any_dtype_are_converted(tmp_path: Path, stored: str) -> None:
    pairs, features = random_pairs(40, 200), np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    dataset = build(tmp_path / "graph", pairs, features, stored)
    tables = propagate_small(dataset, tmp_path / "s", hops=1).tables
    kept = table_values(tables, 0)
    np.testing.assert_allclose(kept, features, atol=0.05)
    np.testing.assert_allclose(table_values(tables, 1), dense_tables(pairs, kept, "sign", 1, "in")[0], atol=1e-5)


@pytest.mark.fast("20000-128")
@pytest.mark.parametrize(("num_nodes", "dim"), [(20_000, 128), (2_000, 1433)])
def test_the_same_bytes_at_any_budget_and_with_any_threads(tmp_path: Path, num_nodes: int, dim: int) -> None:
    features = np.random.default_rng(0).normal(size=(num_nodes, dim)).astype(np.float32)
    dataset = build(tmp_path / "graph", random_pairs(num_nodes, 5 * num_nodes), features)
    expected = None
    for share, threads in ((20, 1), (20, 2), (5, 2), (1, 1), (1, 2)):
        budget_bytes = features.nbytes // share
        scratch = tmp_path / f"{share}-{threads}"
        done = propagate_small(dataset, scratch, memory_bytes=budget_bytes, threads=threads, hops=2, rows="all")
        assert done.plan is not None
        assert sum(done.plan.reserved.values()) <= budget_bytes
        found = folder_bytes(done.tables.path)
        expected = expected or found
        assert found == expected


@pytest.mark.fast("row-float32")
@pytest.mark.parametrize(
    ("operator", "dtype"),
    [
        ("row", "float32"),
        ("ppr", "bfloat16"),
        pytest.param("sign", "float32", marks=pytest.mark.slow),
        pytest.param("row", "bfloat16", marks=pytest.mark.slow),
        pytest.param("heat", "float32", marks=pytest.mark.slow),
        pytest.param("sign", "bfloat16", marks=pytest.mark.slow),
        pytest.param("ppr", "float32", marks=pytest.mark.slow),
        pytest.param("heat", "bfloat16", marks=pytest.mark.slow),
    ],
)
def test_cold_edges_change_no_byte(tmp_path: Path, operator: str, dtype: str) -> None:
    num_nodes, dim = 20_000, 30
    features = np.random.default_rng(0).normal(size=(num_nodes, dim)).astype(np.float32)
    dataset = build(tmp_path / "graph", skewed_pairs(num_nodes, 150_000), features)
    options: dict[str, Any] = {"operators": (operator,), "hops": 2, "dtype": dtype, "rows": "all"}
    whole = propagate_small(dataset, tmp_path / "whole", **options)
    assert whole.plan is not None
    assert whole.plan.cold is None
    expected = folder_bytes(whole.tables.path)
    num_cold = 0
    for memory_bytes in range(700_000, 2_400_000, 100_000):
        scratch = tmp_path / f"{memory_bytes}"
        done = propagate_small(dataset, scratch, memory_bytes=memory_bytes, threads=2, **options)
        assert done.plan is not None
        num_cold += done.plan.cold is not None
        assert sum(done.plan.reserved.values()) <= memory_bytes
        assert folder_bytes(done.tables.path) == expected
        planned = {stage.name: stage for stage in done.plan.steps}
        assert {step["step"] for step in done.steps} == set(planned)
        for step in done.steps[1:]:
            # Scalings make the difference, and a row's end in lists.
            stage = planned[step["step"]]
            assert 0.8 * stage.bytes_read <= step["bytes_read"] <= stage.bytes_read
            assert step["bytes_written"] == stage.bytes_written
        shutil.rmtree(scratch)
    assert 3 < num_cold < 17


@pytest.mark.parametrize("sources", [[], [0], [11_999]])
def test_few_sources_in_little_memory(tmp_path: Path, sources: list[int]) -> None:
    features = np.random.default_rng(0).normal(size=(12_000, 9)).astype(np.float32)
    pairs = np.array([sources, [5] * len(sources)], np.int64)
    dataset = build(tmp_path / "graph", pairs, features)
    whole = propagate_small(dataset, tmp_path / "whole", hops=1).tables
    for memory_bytes in (400_000, 500_000, 600_000):
        tables = propagate_small(dataset, tmp_path / f"{memory_bytes}", memory_bytes=memory_bytes, hops=1).tables
        assert folder_bytes(tables.path) == folder_bytes(whole.path)
