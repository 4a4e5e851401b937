"""Graphs of pandas, Polars, DuckDB, PyArrow, SciPy and NetworkX become datasets."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
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
from diskhop.errors import ConfigError, DestinationError, SourceError

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


TYPED = {("user", "buys", "item"): pa.table({"user": [0], "item": [5]})}


@pytest.mark.parametrize("name", ["a/b", "..", "a__b", "", "a\0b", "_a", "a_", "x" * 101, 7, None])
def test_names_of_types_are_checked_before_they_name_files(name: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^nodes\[.*type name .* must be letters.*; rename the type$"):
        diskhop.from_arrow(TYPED, tmp_path / "graph", nodes={name: pa.table({"id": [0]})})
    with pytest.raises(ConfigError, match=r"^edges\[.*type name .* must be letters.*; rename the type$"):
        diskhop.from_arrow({("user", name, "item"): TYPED["user", "buys", "item"]}, tmp_path / "graph")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("edges", "nodes", "message"),
    [
        ({}, None, "edges has no tables"),
        ({"buys": pa.table(EDGES)}, None, "a key must be \\(source type, relation, destination type\\)"),
        ({("u" * 50, "buys", "i" * 50): pa.table(EDGES)}, None, "at most 96 characters together"),
        (TYPED, pa.table(NODES), "nodes must be a dict by type"),
        (pa.table(EDGES), {"user": pa.table(NODES)}, "edges must be a dict by type"),
    ],
)
def test_dicts_of_tables_are_refused_with_what_they_must_be(
    edges: Any, nodes: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        diskhop.from_arrow(edges, tmp_path / "graph", nodes=nodes)
    assert list(tmp_path.iterdir()) == []


def broken_stream(error: BaseException) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"source": [0], "destination": [1]})
        raise error

    return pa.RecordBatchReader.from_batches(pa.table({"source": [0], "destination": [1]}).schema, batches())


class NoStream:
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        raise KeyError("lost")


@pytest.mark.parametrize(
    "table",
    [
        broken_stream(OSError(5, "the\ndatabase is gone")),
        broken_stream(ValueError("a value")),
        NoStream(),
        pandas.DataFrame({"source": [0, "x"], "destination": [1, 2]}),
        pa.table({"source": pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "destination": [0]}),
    ],
)
def test_errors_of_a_table_name_it(table: Any, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^nodes: cannot be read: [^\n]*; correct the table") as told:
        diskhop.from_arrow(pa.table(EDGES), tmp_path / "graph", nodes=table)
    assert str(tmp_path) not in str(told.value)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_import_left_is_removed_by_the_next(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield pa.record_batch(EDGES)

    child = os.fork()
    if not child:
        diskhop.from_arrow(pa.RecordBatchReader.from_batches(pa.table(EDGES).schema, batches()), tmp_path / "graph")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    (left / "edges").mkdir()
    diskhop.from_arrow(pa.table(EDGES), tmp_path / "graph", weight="weight")
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


def test_a_taken_destination_is_refused_before_tables_are_read(tmp_path: Path) -> None:
    diskhop.from_arrow(pa.table(EDGES), tmp_path / "graph", weight="weight")
    with pytest.raises(DestinationError, match="already exists; replace it with --overwrite"):
        diskhop.from_arrow(broken_stream(AssertionError("was read")), tmp_path / "graph")


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
