"""Importing folders of files named by type: what comes out is what went in, bad input is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.verify import verify
from diskhop.errors import ConfigError, DiskhopError
from diskhop.importing.arrays.typed_files import TypedFiles
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from tests.graphs import SHARED_DATA, threads_engine
from tests.unit.test_import_ogb import typed_edges, values

EDGES = ("author__writes__paper", "paper__in__venue", "paper__written_by__author")
COUNTS = {"author": 12, "paper": 20, "venue": 3}


def file_of(edge_type: str) -> str:
    return f"edges-{edge_type.replace('__', '--')}.npy"


def save_csr(path: Path, dense: Any) -> None:
    rows, columns = np.nonzero(dense)
    indptr = np.searchsorted(rows, np.arange(len(dense) + 1))
    csr = {"x_indptr": indptr, "x_indices": columns.astype(np.int32), "x_data": dense[rows, columns]}
    np.savez_compressed(path, **csr, x_shape=np.array(dense.shape))


def good_labels() -> dict[str, Any]:
    labels: dict[str, Any] = {"node_type": np.array("author"), "y": np.arange(12) % 4}
    labels["y"][11] = -1
    for number, train in ((100, [5, 2]), (20, [0])):
        labels |= {f"train_{number}": train, f"val_{number}": [7], f"test_{number}": [9, 8, 10]}
    return labels


def save_graph(folder: Path) -> dict[str, Any]:
    """Save a small typed graph: dense, sparse and no features, three edge types, two splits and a note."""
    generator = np.random.default_rng(0)
    folder.mkdir()
    graph: dict[str, Any] = {"edges": {}}
    for name in EDGES:
        source, _, destination = name.split("__")
        pairs = np.stack([generator.integers(0, COUNTS[each], 40) for each in (source, destination)])
        pairs[:, 0] = COUNTS[source] - 1, COUNTS[destination] - 1
        graph["edges"][name] = pairs
        np.save(folder / file_of(name), pairs)
    graph["author"] = np.where(generator.random((12, 5)) < 0.5, generator.normal(size=(12, 5)), 0).astype(np.float32)
    save_csr(folder / "nodes-author.npz", graph["author"])
    graph["paper"] = generator.normal(size=(20, 3)).astype(np.float16)
    np.savez(folder / "nodes-paper.npz", x=graph["paper"], year=np.arange(20))
    np.savez(folder / "labels.npz", **good_labels())
    (folder / "README.json").write_text("{}")
    return graph


def imported(source: Path, **options: Any) -> Dataset:
    return import_graph(source, source.parent / "graph", engine=threads_engine(), **options)


def features_of(dataset: Dataset, node_type: str, dtype: Any) -> Any:
    table = dataset.nodes[node_type].feature_table()
    assert table is not None
    return np.fromfile(table.path, dtype).reshape(table.num_rows, -1)


def test_what_comes_out_is_what_went_in(tmp_path: Path) -> None:
    graph = save_graph(tmp_path / "dblp")
    facts: dict[str, Any] = {}
    decisions: list[Any] = []
    dataset = imported(tmp_path / "dblp", on_facts=facts.update, on_decisions=decisions.extend)
    assert dataset.name == "dblp"
    assert {name: nodes.num_nodes for name, nodes in dataset.nodes.items()} == COUNTS
    assert typed_edges(dataset) == {
        name: sorted(map(tuple, pairs.T.tolist())) for name, pairs in graph["edges"].items()
    }
    assert {edges.ends for edges in dataset.edges.values()} == {tuple(name.split("__")) for name in EDGES}
    for name, edges in dataset.edges.items():
        edge_ids = edges.edge_ids()
        assert edge_ids is not None
        sources = np.fromfile(edges.topology.indices_path, edges.topology.index_dtype)
        np.testing.assert_array_equal(graph["edges"][name][0][edge_ids], sources)
    np.testing.assert_array_equal(features_of(dataset, "author", np.float32), graph["author"])
    np.testing.assert_array_equal(features_of(dataset, "paper", np.float16), graph["paper"])
    authors = dataset.nodes["author"]
    assert values(authors.labels) == good_labels()["y"].tolist()
    assert [values(authors.split_rows("train", number)) for number in (0, 1)] == [[0], [5, 2]]
    assert facts["left_out"] == ["README.json", "nodes-paper.npz: year"]
    assert [each.role for each in decisions] == ["labels of 'author'", "splits 0 to 1"]
    assert decisions[1].why.endswith("ascending: 20, 100")
    assert not verify(dataset.path)


def test_masks_columns_and_one_relation_give_a_plain_graph(tmp_path: Path) -> None:
    """A type that only its labels count; no validation part; (edges, 2)."""
    source = tmp_path / "source"
    source.mkdir()
    pairs = np.array([[0, 3], [4, 1], [2, 2]], np.int32)
    np.save(source / "edges-person--knows--person.npy", pairs)
    is_train = np.arange(6) < 2
    np.savez(source / "labels.npz", y=np.arange(6) % 2, train_mask=is_train, test=np.array([5, 4]), val=np.array([]))
    dataset = imported(source)
    assert (dataset.num_nodes, dataset.num_edges, [*dataset.edges]) == (6, 3, ["edge"])
    assert typed_edges(dataset)["edge"] == sorted(map(tuple, pairs.tolist()))
    assert (values(dataset.split_rows("train")), values(dataset.split_rows("test"))) == ([0, 1], [5, 4])
    assert dataset.split_rows("valid") is None


@pytest.mark.parametrize(
    ("features", "rows", "found"),
    [
        ({"author": 12, "paper": 20}, 12, "author"),
        ({"author": 12, "paper": 20}, 7, "venue"),
        ({"author": 12, "paper": 12}, 12, "fit the nodes author, paper alike; save the type with them"),
        ({"author": 12, "paper": 20, "venue": 3}, 7, "fit the number of nodes of no type; save the type with them"),
    ],
)
def test_labels_without_a_type_are_placed_if_one_fits(
    tmp_path: Path, features: dict[str, int], rows: int, found: str
) -> None:
    source = tmp_path / "source"
    save_graph(source)
    for path in source.glob("nodes-*"):
        path.unlink()
    for name, count in features.items():
        np.save(source / f"nodes-{name}.npy", np.zeros((count, 2)))
    np.savez(source / "labels.npz", y=np.zeros(rows, int))
    if " " in found:
        with pytest.raises(DiskhopError, match=found):
            TypedFiles(source, ImportOptions())
    else:
        assert TypedFiles(source, ImportOptions()).decisions[0].role == f"labels of '{found}'"


def test_options_are_meant_per_type_or_refused(tmp_path: Path) -> None:
    save_graph(tmp_path / "source")
    for options, words in (
        (ImportOptions(undirected=True), "--undirected requires edges within one node type"),
        (ImportOptions(label=("y",)), "--label does not apply to a folder of edges-SOURCE"),
        (ImportOptions(order="hot"), "--order hot requires one node type"),
    ):
        with pytest.raises(ConfigError, match=words):
            imported(tmp_path / "source", options=options)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    dataset = imported(tmp_path / "source", options=ImportOptions(dtype="float16"))
    assert {dataset.nodes[name].feature_dtype for name in ("author", "paper")} == {"float16"}


def damaged(folder: Path, name: str, content: Any) -> None:
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, dict):
        np.savez(path, **({**good_labels(), **content} if name == "labels.npz" else content))
    else:
        np.save(path, content)


ZEROS = np.zeros((2, 5), int)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (file_of(EDGES[0]), np.full((2, 5), 12), "edges-author--writes--paper.npy: edge 0 has source 12"),
        (file_of(EDGES[0]), np.full((2, 5), -1), "edges-author--writes--paper.npy"),
        (file_of(EDGES[0]), np.zeros((3, 5), int), "must be integers of shape (2, any), got shape (3, 5)"),
        (file_of(EDGES[0]), np.zeros((2, 5)), "must be integers of shape (2, any), got shape (2, 5) of float64"),
        (file_of(EDGES[0]), np.array([{}, {}]), "holds objects, which only a pickle can hold"),
        (file_of(EDGES[0]), b"no array", "is not a NumPy array"),
        ("edges-author--paper.npy", ZEROS, "edges-author--paper.npy: must have a name like edges-author--writes"),
        ("edges-a b--c--paper.npy", ZEROS, "type name 'a b' must be letters"),
        ("edges-author--writes__paper--paper.npy", ZEROS, ""),
        ("nodes-authors.npz", {"x": np.zeros((2, 2))}, "no edges have nodes 'authors', their types are author, paper"),
        ("nodes-paper.npy", np.zeros((20, 2)), "there is nodes-paper.npy too; keep one"),
        ("nodes-paper.npz", {"x": np.zeros(20)}, "nodes-paper.npz: x: must be (nodes, dim)"),
        ("nodes-paper.npz", {"y": np.zeros(20)}, "nodes-paper.npz: has neither x, x_indptr"),
        ("nodes-paper.npz", {"x_data": np.zeros(20)}, "nodes-paper.npz: sparse features need all of x_indptr"),
        ("nodes-paper.npz", {"x": np.zeros((20, 2)), "num_nodes": 21}, "arrays of 'paper' differ in the number of"),
        ("nodes-venue.npz", {"num_nodes": 2}, "edges-paper--in--venue.npy"),
        ("labels.npz", b"PK", "labels.npz: cannot be read"),
        ("labels.npz", {"node_type": "person"}, "node_type is 'person', no edges have such nodes; save one of author"),
        ("labels.npz", {"node_type": np.array({})}, "labels.npz: node_type: cannot be read"),
        ("labels.npz", {"node_type": 3}, "labels.npz: node_type: must be one short text"),
        ("labels.npz", {"y": np.zeros(11, int)}, "arrays of 'author' differ in the number of nodes (nodes-author.npz"),
        ("labels.npz", {"y": np.array([{}] * 12)}, "labels.npz: y: holds objects, which only a pickle can hold"),
        ("labels.npz", {"y": np.full(12, -2)}, "labels.npz: y: label of node 0 is -2"),
        ("labels.npz", {"train_20": [12]}, "lists node 12, but nodes are numbered 0 to 11"),
        ("labels.npz", {"train_20": [1, 1]}, "lists node 1 twice"),
        ("labels.npz", {"train_20": np.zeros(2)}, "train_20: must be integers of shape (any)"),
        ("labels.npz", {"train": [1]}, "labels.npz: train: there is"),
        ("labels.npz", {"valid_20": [1]}, "keep one"),
        ("labels.npz", {"val_60": [1]}, "has splits 20, 100 of 'train' but 20, 60, 100 of 'valid'"),
        ("labels.npz", {"train_ids": [1]}, "train_ids: is no name of a part of a split; rename it"),
        ("labels.npz", {"train_mask_20": [1]}, "must be booleans of shape (any)"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path: Path, name: str, content: Any, words: str) -> None:
    source = tmp_path / "source"
    save_graph(source)
    damaged(source, name, content)
    if not words:
        words = "has the same edge type"
        damaged(source, "edges-author__writes--paper--paper.npy", content)
    with pytest.raises(DiskhopError) as caught:
        imported(source)
    assert words in str(caught.value)
    assert str(source) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("name", "counts", "labeled", "splits"),
    [
        ("dblp", {"author": 4057, "conference": 20, "paper": 14328, "term": 7723}, "author", 3),
        ("aifb", {"entity": 8285}, "entity", 1),
    ],
)
def test_real_graphs(tmp_path: Path, name: str, counts: dict[str, int], labeled: str, splits: int) -> None:
    if not (SHARED_DATA / name).is_dir():
        pytest.skip(f"needs the graph '{name}' in ../shared/data")
    options = ImportOptions(dtype="int8" if name == "dblp" else None)
    dataset = import_graph(SHARED_DATA / name, tmp_path / name, options=options, engine=threads_engine())
    assert {each: nodes.num_nodes for each, nodes in dataset.nodes.items()} == counts
    assert len(dataset.edges) == (45 if name == "aifb" else 6)
    assert dataset.nodes[labeled].num_splits == splits
    assert dataset.nodes[labeled].num_outputs == 4
