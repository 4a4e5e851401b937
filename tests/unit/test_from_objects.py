"""Graphs of pandas, Polars, DuckDB, PyArrow, SciPy and NetworkX become datasets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import networkx
import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
import scipy.sparse

import diskhop
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, SourceError

EDGES = {"source": [10, 20, 30, 10], "destination": [20, 30, 10, 30], "weight": [0.5, 1.0, 2.0, 4.0]}
NODES = {"id": [30, 10, 20], "label": [1, 0, 1], "feature": [[3.0, 0.0], [1.0, 0.0], [2.0, 0.0]]}
TABLES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pandas": pandas.DataFrame,
    "polars": polars.DataFrame,
    "pyarrow": pa.table,
    "reader": lambda columns: pa.table(columns).to_reader(),
    "duckdb": lambda columns: duckdb.arrow(pa.table(columns)),
}


def edges_of(dataset: Dataset) -> set[tuple[Any, ...]]:
    columns = dataset.to_arrow("edges").read_all().to_pydict().values()
    return set(zip(*columns, strict=True))


@pytest.mark.parametrize("kind", TABLES)
def test_tables_of_arrow_are_imported(kind: str, tmp_path: Path) -> None:
    make = TABLES[kind]
    dataset = diskhop.from_arrow(make(EDGES), tmp_path / "graph", nodes=make(NODES), weight="weight", memory="300MB")
    assert (dataset.name, dataset.num_nodes, dataset.num_edges) == ("graph", 3, 4)
    assert dataset.node_ids().tolist() == NODES["id"]
    assert dataset.labels is not None
    assert dataset.labels.tolist() == NODES["label"]
    assert dataset.features is not None
    np.testing.assert_array_equal(dataset.features[NODES["id"]], NODES["feature"])
    assert edges_of(dataset) == set(zip(*EDGES.values(), strict=True))
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


def test_a_stream_of_a_dataset_can_be_imported_again(tmp_path: Path) -> None:
    first = diskhop.from_arrow(pa.table(EDGES), tmp_path / "first", nodes=pa.table(NODES), weight="weight")
    nodes, edges = first.to_arrow("nodes"), first.to_arrow("edges")
    again = diskhop.from_arrow(edges, tmp_path / "again", nodes=nodes, weight="weight")
    assert edges_of(again) == edges_of(first)
    assert again.to_arrow("nodes").read_all() == first.to_arrow("nodes").read_all()


def test_tables_by_type_become_a_typed_graph(tmp_path: Path) -> None:
    buys = polars.DataFrame({"user": [0, 1, 1], "item": [5, 6, 5]})
    nodes = {"user": polars.DataFrame({"id": [0, 1]}), "item": polars.DataFrame({"id": [5, 6], "price": [1.5, 2.5]})}
    dataset = diskhop.from_arrow({("user", "buys", "item"): buys}, tmp_path / "graph", nodes=nodes)
    assert [*dataset.nodes] == ["item", "user"]
    (edges,) = dataset.edges.values()
    assert sorted(edges.neighbors(5)) == [0, 1]


def test_what_is_no_table_is_refused_in_the_caller_s_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="edges must be a table of pandas, Polars, DuckDB or PyArrow, got list"):
        diskhop.from_arrow([[0, 1]], tmp_path / "graph")
    with pytest.raises(SourceError) as told:
        diskhop.from_arrow(pa.table({"source": [0], "text": ["a b"]}), tmp_path / "graph")
    assert str(tmp_path) not in str(told.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["csr_array", "csc_matrix", "coo_array"])
def test_sparse_matrices_are_imported(form: str, tmp_path: Path) -> None:
    dense = np.array([[0, 2.5, 0], [0, 0, 1], [1, 0, 0]], np.float32)
    matrix = getattr(scipy.sparse, form)(dense)
    x, mask = np.eye(3, dtype=np.float32), np.array([True, False, True])
    dataset = diskhop.from_scipy(matrix, tmp_path / "graph", x=x, y=np.arange(3), train_mask=mask, memory="100MB")
    assert edges_of(dataset) == {(0, 1, 2.5), (1, 2, 1.0), (2, 0, 1.0)}
    assert dataset.features is not None
    np.testing.assert_array_equal(dataset.features[:], x)
    assert dataset.splits["train"].tolist() == [0, 2]
    plain = diskhop.from_scipy(getattr(scipy.sparse, form)(dense > 0), tmp_path / "plain")
    assert edges_of(plain) == {(0, 1), (1, 2), (2, 0)}
    with pytest.raises(SourceError, match=r"has shape \(2, 3\)"):
        diskhop.from_scipy(scipy.sparse.coo_array(dense[:2]), tmp_path / "wide")
    with pytest.raises(ConfigError, match="sparse matrix of SciPy, got ndarray"):
        diskhop.from_scipy(dense, tmp_path / "dense")


def test_graphs_of_networkx_are_imported(tmp_path: Path) -> None:
    graph = networkx.Graph()
    for number, name in enumerate("cab"):
        graph.add_node(name, x=[float(number)], y=number)
    graph.add_edge("c", "a", weight=0.5)
    graph.add_edge("b", "b", weight=2.0)
    dataset = diskhop.from_networkx(graph, tmp_path / "graph")
    assert edges_of(dataset) == {(0, 1, 0.5), (1, 0, 0.5), (2, 2, 2.0)}
    assert dataset.features is not None
    assert dataset.features[:].tolist() == [[0], [1], [2]]
    directed = networkx.MultiDiGraph([(5, 7), (5, 7), (7, 5)])
    assert diskhop.from_networkx(directed, tmp_path / "directed").degrees.tolist() == [1, 2]
    graph.add_node("d")
    with pytest.raises(SourceError, match="node 3 has no attribute 'x', which others have"):
        diskhop.from_networkx(graph, tmp_path / "other")
    with pytest.raises(ConfigError, match="must be a graph of NetworkX, got list"):
        diskhop.from_networkx([(0, 1)], tmp_path / "other")
