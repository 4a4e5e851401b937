"""Importing MAG240M's and IGB's folders: typed graphs of .npy files, read in place."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, DiskhopError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from tests.graphs import edges_of, threads_engine
from tests.unit.test_import_ogb import typed_edges, values

COUNTS = {"author": 12, "institution": 4, "paper": 20}
RELATIONS = ("author___affiliated_with___institution", "author___writes___paper", "paper___cites___paper")


def save(path: Path, array: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)


def mag(folder: Path) -> dict[str, Any]:
    """Write MAG240M's layout: (2, edges), float16, classes in floats, arrays for papers alone, and pickles."""
    generator = np.random.default_rng(0)
    root = folder / "processed"
    features = generator.normal(size=(20, 3)).astype(np.float16)
    labels = np.where(np.arange(20) % 2, np.nan, np.arange(20) % 4).astype(np.float32)
    save(root / "paper" / "node_feat.npy", features)
    save(root / "paper" / "node_label.npy", labels)
    save(root / "paper" / "node_year.npy", labels)
    edges = {}
    for name in RELATIONS:
        source, _, destination = name.split("___")
        ends = [generator.integers(0, COUNTS[each], 40) for each in (source, destination)]
        ends[0][0], ends[1][1] = COUNTS[source] - 1, COUNTS[destination] - 1
        edges[name] = np.stack(ends)
        save(root / name / "edge_index.npy", edges[name])
    for name in ("meta.pt", "split_dict.pt"):
        (folder / name).write_bytes(pickle.dumps({"train": [1]}))
    return {"features": features, "labels": np.where(np.isnan(labels), -1, labels).tolist(), "edges": edges}


def igb(folder: Path) -> dict[str, Any]:
    """Write the layout of IGB's homogeneous graphs: (edges, 2), float32, two files of labels, an index of objects."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(20, 3)).astype(np.float32)
    edges = generator.integers(0, 20, (40, 2))
    save(folder / "processed" / "paper" / "node_feat.npy", features)
    save(folder / "processed" / "paper" / "node_label_19.npy", np.arange(20.0) % 5)
    save(folder / "processed" / "paper" / "node_label_2K.npy", np.arange(20) % 10)
    save(folder / "processed" / "paper" / "paper_id_index_mapping.npy", np.array({"a": 1}))
    save(folder / "processed" / "paper__cites__paper" / "edge_index.npy", edges)
    return {"features": features, "edges": edges}


def imported(source: Path, **options: Any) -> Dataset:
    return import_graph(source, source.parent / "graph", engine=threads_engine(), **options)


def features_of(dataset: Dataset, node_type: str, dtype: Any) -> Any:
    table = dataset.nodes[node_type].feature_table()
    assert table is not None
    return np.fromfile(table.path, dtype).reshape(table.num_rows, -1)


@pytest.mark.parametrize("inner", ["", "processed"])
def test_mag240m_is_a_typed_graph(tmp_path: Path, inner: str) -> None:
    graph = mag(tmp_path / "mag240m")
    facts: dict[str, Any] = {}
    dataset = import_graph(
        tmp_path / "mag240m" / inner, tmp_path / "graph", on_facts=facts.update, engine=threads_engine()
    )
    assert dataset.name == "mag240m"
    assert {name: nodes.num_nodes for name, nodes in dataset.nodes.items()} == COUNTS
    assert typed_edges(dataset) == {name: sorted(map(tuple, ends.T.tolist())) for name, ends in graph["edges"].items()}
    assert {name: (edges.source, edges.destination) for name, edges in dataset.edges.items()} == {
        name: (name.split("___")[0], name.split("___")[2]) for name in RELATIONS
    }
    np.testing.assert_array_equal(features_of(dataset, "paper", np.float16), graph["features"])
    assert values(dataset.nodes["paper"].labels) == graph["labels"]
    assert facts["left_out"] == (
        ["paper/node_year.npy"] if inner else ["meta.pt", "processed/paper/node_year.npy", "split_dict.pt"]
    )


def test_igb_of_one_type_is_a_plain_graph(tmp_path: Path) -> None:
    graph = igb(tmp_path / "small")
    facts: dict[str, Any] = {}
    dataset = imported(
        tmp_path / "small", options=ImportOptions(label=("node_label_19",), order="hot"), on_facts=facts.update
    )
    original = dataset.original_ids()
    assert original is not None
    np.testing.assert_array_equal(features_of(dataset, "node", np.float32), graph["features"][original])
    assert values(dataset.labels) == (np.arange(len(original)) % 5).tolist()
    edges = [(original[source], original[node]) for source, node in edges_of(dataset)]
    assert sorted(edges) == sorted(map(tuple, graph["edges"].tolist()))
    assert facts["left_out"] == [
        "processed/paper/node_label_2K.npy",
        "processed/paper/paper_id_index_mapping.npy",
    ]


@pytest.mark.parametrize("pairs", [[[0, 3], [1, 2]], [[5, 6]], [[0, 1], [2, 3], [4, 5]]])
@pytest.mark.parametrize("fortran", [False, True])
def test_edges_lie_as_the_kind_of_name_says(tmp_path: Path, pairs: list[list[int]], fortran: bool) -> None:
    """Two edges are (2, 2) either way."""
    by_rows = np.array(pairs, order="F" if fortran else "C")
    by_columns = np.array(np.array(pairs).T, order="F" if fortran else "C")
    save(tmp_path / "igb" / "paper__cites__paper" / "edge_index.npy", by_rows)
    save(tmp_path / "mag" / "paper___cites___paper" / "edge_index.npy", by_columns)
    for name in ("igb", "mag"):
        dataset = import_graph(tmp_path / name, tmp_path / f"{name}-graph", engine=threads_engine())
        assert sorted(edges_of(dataset)) == sorted(map(tuple, pairs))


def test_one_of_several_labels_is_named(tmp_path: Path) -> None:
    igb(tmp_path / "source")
    with pytest.raises(DiskhopError, match="several files of labels; choose one: --label node_label_19 or --label"):
        imported(tmp_path / "source")
    with pytest.raises(DiskhopError, match=r"no labels '2K'; --label can be: node_label_19, node_label_2K"):
        imported(tmp_path / "source", options=ImportOptions(label=("2K",)))
    dataset = imported(tmp_path / "source", options=ImportOptions(label=("node_label_2K",)))
    assert dataset.num_classes == 10


def test_edges_between_types_go_one_way(tmp_path: Path) -> None:
    mag(tmp_path / "source")
    with pytest.raises(ConfigError, match="--undirected requires edges within one node type"):
        imported(tmp_path / "source", options=ImportOptions(undirected=True))
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_progress_ends_at_its_total(tmp_path: Path) -> None:
    mag(tmp_path / "source")
    last: dict[str, tuple[int, int]] = {}
    imported(tmp_path / "source", progress=lambda stage, done, total: last.__setitem__(stage, (done, total)))
    assert set(last) == {"counting nodes", "reading edges", "writing edges", "features", "labels"}
    assert all(done == total for done, total in last.values())


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("paper___cites___paper/edge_index", np.zeros((3, 5), int), "must be integers of shape (2, any), got shape"),
        ("paper___cites___paper/edge_index", np.zeros((2, 5)), "must be integers of shape (2, any), got shape"),
        ("paper___cites___paper/edge_index", np.full((2, 5), 20), "has source 20"),
        ("author___writes___paper/edge_index", np.full((2, 5), -1), "author"),
        (
            "author___writes___paper/edge_index",
            np.full((2, 5), 2**62),
            "id 4611686018427387904 of nodes 'author' is out of range",
        ),
        ("a___b___c___d/edge_index", np.zeros((2, 5), int), "a___b___c___d: must have a name like paper__cites__paper"),
        ("paper/node_feat", np.zeros((19, 3)), "paper: its arrays differ in the number of nodes ("),
        ("paper/node_feat", np.zeros(20), "node_feat.npy: must be (nodes, dim)"),
        ("paper/node_feat", np.array([None] * 20), "node_feat.npy: holds objects, which only a pickle can hold"),
        (
            "paper/node_label",
            np.full(20, 0.5),
            "node_label.npy: label of node 0 is 0.5; a class must be a whole number",
        ),
        ("paper/node_label", np.array({"a": 1}), "node_label.npy: holds objects, which only a pickle can hold"),
    ],
)
def test_bad_arrays_are_one_line_and_leave_nothing(tmp_path: Path, name: str, array: Any, words: str) -> None:
    source = tmp_path / "source"
    mag(source)
    save(source / "processed" / f"{name}.npy", array)
    check_refused(tmp_path, source, words)


def check_refused(folder: Path, source: Path, words: str) -> None:
    with pytest.raises(DiskhopError) as caught:
        imported(source)
    assert words in str(caught.value)
    assert str(source) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in folder.iterdir()] == ["source"]


def test_features_without_a_header_are_refused(tmp_path: Path) -> None:
    """IGB's two largest graphs have such features."""
    mag(tmp_path / "source")
    np.zeros((20, 3), np.float32).tofile(tmp_path / "source" / "processed" / "paper" / "node_feat.npy")
    check_refused(tmp_path, tmp_path / "source", "node_feat.npy: is not a NumPy array (.npy, version 1 to 3)")
