"""An expanded graph is the Kronecker product of the kernel and the graph, and copies have what their node has."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edges import ArrayEdges
from diskhop.dataset.manifest import EDGE, NODE
from diskhop.errors import BudgetError, ConfigError
from diskhop.generating import ExpandConfig, TypedConfig, expand, expand_graph, expanded_bytes, generate_typed_graph
from diskhop.generating.expand import star_kernel
from diskhop.io.engine import open_engine
from tests.examples import examples
from tests.graphs import folder_bytes

_ENGINE = open_engine("threads").engine


def _write(folder: Path, pairs: NDArray[np.int64], num_nodes: int, label_kind: str = "classes") -> Dataset:
    draws = np.random.default_rng(num_nodes)
    with DatasetBuilder(folder, name="g", engine=_ENGINE, budget=Budget(1 << 28), threads=1) as builder:
        builder.add_nodes(NODE, num_nodes)
        builder.add_edge_list(EDGE, NODE, NODE, ArrayEdges(pairs))
        builder.add_features(NODE, [draws.normal(size=(num_nodes, 3))], dim=3, dtype="int8", row_stride=16)
        if label_kind == "classes":
            builder.add_labels(NODE, [draws.integers(-1, 5, num_nodes)], 5)
        elif label_kind == "tasks":
            builder.add_tasks(NODE, [draws.integers(0, 2, (num_nodes, 2)).astype(np.float32)], 2)
        else:
            builder.add_values(NODE, [draws.normal(size=(num_nodes, 2)).astype(np.float32)], 2)
        for number in range(2):
            builder.add_split(NODE, "train", [draws.permutation(num_nodes)[: 1 + number]], number, 2)
        return builder.finish()


def _matrix(dataset: Dataset) -> NDArray[np.int64]:
    """Number of edges by destination and source."""
    files = dataset.topology
    indptr = np.fromfile(files.indptr_path, np.int64)
    destinations = np.repeat(np.arange(files.num_nodes), np.diff(indptr))
    counts = np.zeros((files.num_nodes, files.num_nodes), np.int64)
    np.add.at(counts, (destinations, np.fromfile(files.indices_path, files.index_dtype)), 1)
    return counts


@given(data=st.data(), num_nodes=st.integers(2, 6), factor=st.integers(2, 5))
@examples(8)
def test_an_expansion_is_the_product(data: st.DataObject, num_nodes: int, factor: int) -> None:
    node = st.integers(0, num_nodes - 1)
    pairs = np.array(data.draw(st.lists(st.tuples(node, node), max_size=12)), np.int64).reshape(-1, 2).T
    kind = data.draw(st.sampled_from(["classes", "tasks", "values"]))
    with tempfile.TemporaryDirectory() as name:
        graph = _write(Path(name) / "graph", pairs, num_nodes, kind)
        config = ExpandConfig(factor=factor)
        expanded = expand_graph(graph, Path(name) / "expanded", config, engine=_ENGINE, budget=Budget(1 << 28))
        np.testing.assert_array_equal(_matrix(expanded), np.kron(star_kernel(factor).astype(np.int64), _matrix(graph)))
        assert expanded.num_edges == graph.num_edges * (3 * factor - 2)
        rows, copies = (np.fromfile(each.feature_table().path, np.uint8) for each in (graph, expanded))  # type: ignore[union-attr]
        table = expanded.feature_table()
        assert table is not None
        assert table.row_stride == table.row_bytes  # padding is not copied
        np.testing.assert_array_equal(
            copies.reshape(-1, table.row_bytes), np.tile(rows.reshape(num_nodes, -1)[:, : table.row_bytes], (factor, 1))
        )
        labels, label_copies = graph.label_rows(), expanded.label_rows()
        assert labels is not None
        assert label_copies is not None
        np.testing.assert_array_equal(label_copies, np.concatenate([labels] * factor))
        assert (expanded.label_kind, expanded.num_classes) == (graph.label_kind, graph.num_classes)
        for number in range(2):
            ids, ids_of_copies = graph.split_rows("train", number), expanded.split_rows("train", number)
            assert ids is not None
            assert ids_of_copies is not None
            wanted = np.concatenate([copy * num_nodes + ids for copy in range(factor)])
            np.testing.assert_array_equal(ids_of_copies, wanted)
        written = sum(path.stat().st_size for path in (Path(name) / "expanded" / "nodes").rglob("*.bin"))
        written += sum(path.stat().st_size for path in (Path(name) / "expanded" / "edges").rglob("*.bin"))
        assert written == expanded_bytes(graph, config)


def test_memory_and_threads_change_no_byte(tmp_path: Path) -> None:
    pairs = np.random.default_rng(0).integers(0, 3000, (2, 30_000))
    graph, config = _write(tmp_path / "graph", pairs, 3000), ExpandConfig(factor=9)
    with pytest.raises(BudgetError) as refused:
        expand_graph(graph, tmp_path / "small", config, engine=_ENGINE, budget=Budget(1))
    smallest = Budget(refused.value.smallest_bytes or 0)
    first = expand_graph(graph, tmp_path / "small", config, engine=_ENGINE, budget=smallest, threads=2)
    assert smallest.peak_bytes <= smallest.total_bytes
    second = expand_graph(graph, tmp_path / "large", config, engine=_ENGINE, budget=Budget(1 << 30), threads=1)
    assert folder_bytes(first.path) == folder_bytes(second.path)
    assert first.name == "g x9"


def test_other_graphs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = generate_typed_graph(tmp_path / "typed", TypedConfig(num_nodes=200, seed=1), engine=_ENGINE)
    with pytest.raises(ConfigError, match="one type of nodes and one of edges"):
        expand_graph(typed, tmp_path / "expanded", ExpandConfig(), engine=_ENGINE)
    graph = _write(tmp_path / "graph", np.zeros((2, 1), np.int64), 2)
    monkeypatch.setattr(expand, "MOST_COUNT", 2997)
    with pytest.raises(ConfigError, match="--factor must keep nodes and edges within"):
        expand_graph(graph, tmp_path / "expanded", ExpandConfig(factor=1000), engine=_ENGINE)
    assert not (tmp_path / "expanded").exists()
    with pytest.raises(ConfigError, match="factor must be from 2 to 1000, got 1"):
        ExpandConfig(factor=1)
