"""Importing GraphBolt folders: what comes out is what went in; what breaks a rule is one line and leaves nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from diskhop.cli import run
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, SourceError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from tests.graphs import edges_of, threads_engine

GENERATOR = np.random.default_rng(0)
PAIRS = GENERATOR.integers(0, 20, (2, 60))
FEATURES = GENERATOR.normal(size=(20, 3)).astype(np.float32)
CLASSES = np.arange(20) % 4
SETS = {"train": np.array([7, 3, 5]), "validation": np.array([1, 19]), "test": np.array([0, 2])}
NAMES = {"train": "train", "validation": "valid", "test": "test"}


def entry(path: str, **more: Any) -> dict[str, Any]:
    return {**more, "format": "numpy", "path": path}


def plain(folder: Path) -> dict[str, Any]:
    """A graph with one type, as DGL's tutorial has it; its metadata, and its arrays in the folder."""
    folder.mkdir()
    np.savetxt(folder / "edges.csv", PAIRS.T, "%d", ",")
    np.save(folder / "pairs.npy", PAIRS)
    np.save(folder / "feat.npy", FEATURES)
    np.save(folder / "other.npy", FEATURES)
    task: dict[str, Any] = {"name": "node_classification", "num_classes": 5}
    for name, seeds in SETS.items():
        np.save(folder / f"{name}-seeds.npy", seeds)
        np.save(folder / f"{name}-labels.npy", CLASSES[seeds])
        data = [entry(f"{name}-seeds.npy", name="seeds"), entry(f"{name}-labels.npy", name="labels")]
        task[f"{name}_set"] = [{"data": data}]
    return {
        "dataset_name": "tutorial",
        "graph": {"nodes": [{"num": 20}], "edges": [{"format": "csv", "path": "edges.csv"}]},
        "feature_data": [entry("feat.npy", domain="node", name="feat", in_memory=False)],
        "tasks": [task],
    }


def typed(folder: Path) -> dict[str, Any]:
    """Papers and authors, with texts and arrays of edges."""
    metadata = plain(folder)
    np.save(folder / "cites.npy", PAIRS)
    (folder / "writes.csv").write_text("0,19\n4,0\n")
    (folder / "reads.csv").write_text("1,1\n2,2\n0,0\n")
    (folder / "none.csv").write_text("")
    metadata["graph"] = {
        "nodes": [{"type": "author", "num": 5}, {"type": "paper", "num": 20}],
        "edges": [
            entry("cites.npy", type="paper:cites:paper"),
            {"type": "author:writes:paper", "format": "csv", "path": "writes.csv"},
            {"type": "author:reads:paper", "format": "csv", "path": "reads.csv"},
            {"type": "paper:reads:author", "format": "csv", "path": "none.csv"},
        ],
    }
    metadata["feature_data"][0]["type"] = "paper"
    for name in SETS:
        metadata["tasks"][0][f"{name}_set"][0]["type"] = "paper"
    return metadata


def save(folder: Path, metadata: Any) -> Path:
    (folder / "metadata.yaml").write_text(yaml.safe_dump(metadata))
    return folder


def imported(source: Path, **options: Any) -> Dataset:
    return import_graph(source, source.parent / "graph", engine=threads_engine(), **options)


@pytest.mark.parametrize("file_format", ["csv", "numpy"])
def test_a_graph_of_one_type_is_what_the_folder_says(tmp_path: Path, file_format: str) -> None:
    metadata = plain(tmp_path / "source")
    if file_format == "numpy":
        metadata["graph"]["edges"] = [entry("pairs.npy")]
    facts: dict[str, Any] = {}
    dataset = imported(save(tmp_path / "source", metadata), on_facts=facts.update)
    assert facts == {"edge_ids": {"kept": True, "bytes": 240, "bytes_if_kept": 240, "bytes_per_edge": 4}}
    assert (dataset.name, dataset.num_nodes, dataset.num_classes) == ("tutorial", 20, 5)
    assert sorted(edges_of(dataset)) == sorted(map(tuple, PAIRS.T.tolist()))
    table, labels = dataset.feature_table(), dataset.labels
    assert table is not None
    assert labels is not None
    np.testing.assert_array_equal(np.fromfile(table.path, np.float32).reshape(20, 3), FEATURES)
    in_sets = np.concatenate(list(SETS.values()))
    np.testing.assert_array_equal(labels, np.where(np.isin(np.arange(20), in_sets), CLASSES, -1))
    for name, seeds in SETS.items():
        np.testing.assert_array_equal(dataset.split(NAMES[name]), seeds)


def test_a_typed_graph_stays_typed(tmp_path: Path) -> None:
    dataset = imported(save(tmp_path / "source", typed(tmp_path / "source")))
    assert {name: nodes.num_nodes for name, nodes in dataset.nodes.items()} == {"author": 5, "paper": 20}
    ends = {name: (edges.source, edges.destination, edges.num_edges) for name, edges in dataset.edges.items()}
    assert ends == {
        "cites": ("paper", "paper", 60),
        "writes": ("author", "paper", 2),
        "author-reads-paper": ("author", "paper", 3),
        "paper-reads-author": ("paper", "author", 0),
    }
    topology = dataset.edges["writes"].topology
    assert np.fromfile(topology.indices_path, np.uint32).tolist() == [4, 0]
    assert np.diff(np.fromfile(topology.indptr_path, np.int64)).tolist() == [1] + 18 * [0] + [1]
    assert dataset.nodes["paper"].num_classes == 5
    assert (dataset.nodes["author"].feature_dim, dataset.nodes["author"].labels) == (0, None)
    np.testing.assert_array_equal(dataset.nodes["paper"].split("train"), SETS["train"])


def test_hot_order_and_undirected_edges_work_as_elsewhere(tmp_path: Path) -> None:
    options = ImportOptions(order="hot", undirected=True, dtype="float16")
    dataset = imported(save(tmp_path / "source", plain(tmp_path / "source")), options=options)
    train, labels = dataset.split("train"), dataset.labels
    assert train is not None
    assert labels is not None
    assert (dataset.num_edges, dataset.feature_dtype) == (120 - int((PAIRS[0] == PAIRS[1]).sum()), "float16")
    np.testing.assert_array_equal(train, SETS["train"])
    np.testing.assert_array_equal(labels[train], CLASSES[SETS["train"]])


def test_what_has_no_place_is_left_out_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metadata = plain(tmp_path / "source")
    np.save(tmp_path / "source" / "links.npy", PAIRS.T)
    metadata["feature_data"] += [
        entry("other.npy", domain="node", name="two words"),
        {"domain": "edge", "name": "feat", "format": "torch", "path": "feat.pt"},
        {"domain": "node", "name": "x", "format": "torch", "path": "x.pt"},
    ]
    metadata["graph"]["feature_data"] = [entry("other.npy", domain="node", name="kept")]
    links = {"name": "links", "train_set": [{"data": [entry("links.npy", name="seeds")]}]}
    metadata["tasks"] = [links, *metadata["tasks"]]
    source = save(tmp_path / "source", metadata)
    assert run(["import", str(source), str(tmp_path / "one"), "--json"]) == 0
    left_out = json.loads(capsys.readouterr().out)["import"]["left_out"]
    assert left_out.pop(0) == "graph: feature_data (kept)"
    assert left_out == [
        "feature_data[1] (two words)",
        "feature_data[2] (feat)",
        "feature_data[3] (x)",
        "tasks[0] (links)",
    ]
    assert run(["import", str(source), str(tmp_path / "two")]) == 0
    assert "feature_data[1] (two words)" in capsys.readouterr().out
    assert imported(source).num_classes == 5


def test_tasks_of_one_name_are_several_splits(tmp_path: Path) -> None:
    metadata = plain(tmp_path / "source")
    other = json.loads(json.dumps(metadata["tasks"][0]))
    other["train_set"], other["test_set"] = other["test_set"], other["train_set"]
    metadata["tasks"].append(other)
    dataset = imported(save(tmp_path / "source", metadata))
    assert dataset.num_splits == 2
    np.testing.assert_array_equal(dataset.split("train", 1), SETS["test"])


def test_names_before_dgl_2_2_and_sets_without_labels_are_taken(tmp_path: Path) -> None:
    metadata = plain(tmp_path / "source")
    for name in SETS:
        data = metadata["tasks"][0][f"{name}_set"][0]["data"]
        data[0]["name"] = "seed_nodes"
        del data[1]
    metadata["tasks"][0]["validation_set"] = None
    dataset = imported(save(tmp_path / "source", metadata))
    assert (dataset.labels, dataset.split("valid")) == (None, None)
    np.testing.assert_array_equal(dataset.split("test"), SETS["test"])


def test_labels_of_several_columns_are_tasks(tmp_path: Path) -> None:
    metadata = plain(tmp_path / "source")
    for name, seeds in SETS.items():
        np.save(tmp_path / "source" / f"{name}-labels.npy", np.stack([seeds % 2, seeds % 3 == 0], 1).astype(np.float32))
    del metadata["tasks"][0]["num_classes"]
    dataset = imported(save(tmp_path / "source", metadata))
    labels = dataset.labels
    assert labels is not None
    assert dataset.num_tasks == 2
    assert labels[7].tolist() == [1, 0]
    assert np.isnan(labels[4]).all()


Change = Callable[[dict[str, Any], Path], Any]


def changed(path: str, value: Any) -> Change:
    """Set what lies at a path of keys and numbers."""

    def change(metadata: dict[str, Any], folder: Path) -> None:
        *above, last = [int(key) if key.isdigit() else key for key in path.split("/")]
        place: Any = metadata
        for key in above:
            place = place[key]
        place[last] = value

    return change


def array(name: str, value: Any) -> Change:
    return lambda metadata, folder: np.save(folder / f"{name}.npy", value, allow_pickle=True)


def linked(metadata: dict[str, Any], folder: Path) -> None:
    np.save(folder.parent / "elsewhere.npy", FEATURES)
    (folder / "link.npy").symlink_to(folder.parent / "elsewhere.npy")
    metadata["feature_data"][0]["path"] = "link.npy"


def edges_beyond(metadata: dict[str, Any], folder: Path) -> None:
    (folder / "edges.csv").write_text("0,1\n0,20\n")


SEEDS = "tasks/0/train_set/0/data/0"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed("graph", None), "graph: must be keys and values, got nothing"),
        (changed("graph", [1]), "graph: must be keys and values, got a list (1)"),
        (changed("graph/nodes", {}), "graph: nodes must be a list, got keys (0)"),
        (changed("graph/nodes", []), "graph: nodes must have at least one entry"),
        (changed("graph/nodes/0", 20), "graph: nodes[0]: must be keys and values, got 20"),
        (changed("graph/nodes/0/num", 0), "nodes[0]: num must be a whole number from 1 to"),
        (changed("graph/nodes/0/num", True), "nodes[0]: num must be a whole number from 1 to"),
        (changed("graph/nodes/0/num", "20"), "nodes[0]: num must be a whole number from 1 to"),
        (changed("graph/nodes/0/num", 10**400), "got a number beyond 64 bits"),
        (changed("graph/nodes/0/num", 10), "feat.npy: has shape (20, 3) for 10 nodes"),
        (changed("graph/nodes/0/type", 7), "nodes[0]: type must be 1 to 200 printable characters, got 7"),
        (changed("graph/nodes/0/type", "paper"), "edges[0]: type must be 1 to 200 printable characters, got nothing"),
        (changed("graph/edges", None), "graph: edges must be a list, got nothing"),
        (changed("graph/edges", []), "nodes must each have a type"),
        (changed("graph/edges/0/type", "cites"), "type must be source:relation:destination, got 'cites'"),
        (changed("graph/edges/0/type", "a:b:c"), "type must be between types of nodes"),
        (changed("graph/edges/0/format", "parquet"), "edges[0]: format must be csv or numpy, got 'parquet'"),
        (changed("graph/edges/0/format", None), "edges[0]: format must be 1 to 200 printable characters"),
        (changed("graph/edges/0/path", None), "edges[0]: path must be the path of a file, got nothing"),
        (changed("graph/edges/0/path", "/etc/passwd"), "path must stay in the folder of metadata.yaml"),
        (changed("graph/edges/0/path", "../x.csv"), "path must stay in the folder of metadata.yaml"),
        (changed("graph/edges/0/path", "a/../../x.csv"), "path must stay in the folder of metadata.yaml"),
        (changed("graph/edges/0/path", "none.csv"), "none.csv: is not a regular file"),
        (changed("graph/edges/0/path", "."), "is not a regular file"),
        (changed("graph/edges/0/path", 300 * "x"), "cannot be read: File name too long"),
        (changed("feature_data/0/path", 300 * "x"), "cannot be read: File name too long"),
        (changed("graph/edges/0/path", "x\0y"), "path must be the path of a file"),
        (changed("graph/edges/0", entry("feat.npy")), "feat.npy: must be integers of shape (2, any)"),
        (changed("feature_data", 3), "feature_data must be a list, got 3"),
        (changed("feature_data/0/domain", "nodes"), "feature_data[0]: domain must be node, edge or graph"),
        (changed("feature_data/0/name", None), "feature_data[0]: name must be 1 to 200 printable"),
        (changed("feature_data/0/format", "torch"), "feature_data[0]: format is torch, which is a pickle"),
        (changed("feature_data/0/format", "csv"), "feature_data[0]: format must be numpy or torch, got 'csv'"),
        (changed("feature_data/0/path", "none.npy"), "none.npy: is not a regular file"),
        (changed("tasks", "all"), "tasks must be a list, got 'all'"),
        (changed("tasks/0/num_classes", 0), "tasks[0]: num_classes must be a whole number from 1 to"),
        (changed("tasks/0/num_classes", 2), "label of node"),
        (changed("tasks/0/train_set", {}), "tasks[0]: train_set must be a list"),
        (changed("tasks/0/train_set/0/data", None), "train_set[0]: data must be a list"),
        (changed(f"{SEEDS}/format", "torch"), "data[0]: format is torch, which is a pickle"),
        (changed(f"{SEEDS}/name", "labels"), "data[1]: name must be given once in a set"),
        (changed(f"{SEEDS}/path", "~/../../x"), "path must stay in the folder"),
        (edges_beyond, "edges.csv, line 2: the destination must be less than 20, the number of nodes, got '20'"),
        (linked, "path must stay in the folder of metadata.yaml, got 'link.npy'"),
        (array("feat", FEATURES[:19]), "feat.npy: has shape (19, 3) for 20 nodes"),
        (array("feat", FEATURES[:, 0]), "must be (nodes, dim)"),
        (array("feat", np.array([None])), "feat.npy: holds objects, which only a pickle can hold"),
        (array("train-seeds", np.array([7, 3, 20])), "train-seeds.npy: seed 2 is node 20"),
        (array("train-seeds", np.array([7, 3, -1])), "train-seeds.npy: seed 2 is node -1"),
        (array("train-seeds", np.array([7, 3, 3])), "split 'train' lists node 3 twice"),
        (array("train-seeds", np.array([7.0, 3, 5])), "train-seeds.npy: must be integers of shape (any)"),
        (array("train-seeds", np.array([7, 3])), "train-labels.npy: has shape (3,) for 2 seeds"),
        (array("train-labels", np.array([0, 9, 1])), "label of node 3 is 9; labels must be from 0 to 4"),
        (array("train-labels", np.array([2**64 - 1] * 3, np.uint64)), "labels must be from 0 to 4"),
        (array("train-labels", np.zeros((3, 2))), "give labels of one kind"),
        (array("train-labels", np.zeros(3)), "must be classes, integers of shape"),
    ],
)
def test_malformed_folders_are_one_line_and_leave_nothing(tmp_path: Path, change: Change, words: str) -> None:
    metadata = plain(tmp_path / "source")
    change(metadata, tmp_path / "source")
    save(tmp_path / "source", metadata)
    with pytest.raises(SourceError) as caught:
        imported(tmp_path / "source")
    assert words in str(caught.value)
    assert str(tmp_path / "source") in str(caught.value)
    assert "\n" not in str(caught.value)
    # Edges that were parsed are kept, as everywhere, and told.
    told = {".graph.work"} if ".graph.work" in "".join(getattr(caught.value, "__notes__", [])) else set()
    assert {path.name for path in tmp_path.iterdir()} <= {"source", "elsewhere.npy"} | told


def test_sets_that_disagree_about_a_node_are_refused(tmp_path: Path) -> None:
    metadata = plain(tmp_path / "source")
    np.save(tmp_path / "source" / "test-seeds.npy", np.array([0, 7]))
    np.save(tmp_path / "source" / "test-labels.npy", np.array([0, 2]))
    with pytest.raises(SourceError, match=r"test-labels.npy: says that node 7 has label 2, another set says 3"):
        imported(save(tmp_path / "source", metadata))


NESTED = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
MERGED = "a: &a {x: 1}\nb: &b {<<: [*a, *a]}\nc: {<<: [*b, *b]}\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "metadata.yaml: must be keys and values, got nothing"),
        (b"- 1", "metadata.yaml: must be keys and values, got a list (1)"),
        (b"a: [1", "metadata.yaml, line 1: must be plain YAML"),
        (b"a: b\n\tc: d", "metadata.yaml, line 2: must be plain YAML"),
        (b"a: 1\n---\na: 2", "metadata.yaml, line 2: must be plain YAML: but found another document"),
        (b"\xff\xfe\x00", "must be plain YAML"),
        (b"a: \x07", "must be plain YAML"),
        (b"!!python/object/apply:os.system [id]", "line 1: must be plain YAML: could not determine a constructor"),
        (b"a: 2001-99-99", "must be plain YAML: month must be"),
        (b"a: " + 5000 * b"9", "must be plain YAML: Exceeds the limit"),
        (b"a: !!timestamp", "metadata.yaml: has a value that is not what its tag (as !!int) says; fix the file"),
        (b"a: !!int", "has a value that is not what its tag"),
        (b"a: !!bool maybe", "has a value that is not what its tag"),
        (b"{[a]: 1}", "must be plain YAML: found unhashable key"),
        (NESTED.encode(), "line 2: must be plain YAML: has an alias"),
        (MERGED.encode(), "line 2: must be plain YAML: has an alias"),
        (b"a: " + 100_000 * b"[", "is nested too deeply"),
        (b"# " + (1 << 20) * b"x", "must be at most 1048576 bytes"),
        (b"graph_topology: {type: FusedCSCSamplingGraph, path: a.pt}", "a pickle, which could run any code"),
    ],
)
def test_what_is_no_metadata_is_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "metadata.yaml").write_bytes(content)
    with pytest.raises(SourceError) as caught:
        imported(tmp_path / "source")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_preprocessed_folder_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "source" / "preprocessed").mkdir(parents=True)
    (tmp_path / "source" / "preprocessed" / "metadata.yaml").write_text("graph_topology: {}")
    with pytest.raises(SourceError, match=r"source: has only DGL's preprocessed graph .*a pickle"):
        imported(tmp_path / "source")


def test_options_of_text_do_not_apply(tmp_path: Path) -> None:
    source = save(tmp_path / "source", plain(tmp_path / "source"))
    with pytest.raises(ConfigError, match=r"--nodes does not apply to a folder with metadata.yaml"):
        imported(source, options=ImportOptions(nodes=20))
