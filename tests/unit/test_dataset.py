"""An open dataset gives back what its builder was given."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import xxhash

from diskhop.budget import Budget
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.dataset.edges import ArrayEdges
from diskhop.dataset.encoding import encode_rows
from diskhop.dataset.manifest import CHECKSUMS_NAME
from diskhop.dataset.verify import describe, verify
from diskhop.errors import ConfigError, DestinationError, DiskhopError, FormatError, SourceError
from tests.graphs import folder_bytes, make_dataset, random_pairs, threads_engine

MIB = 1 << 20
Step = Callable[[DatasetBuilder], None]


def builder_at(destination: Path) -> DatasetBuilder:
    return DatasetBuilder(
        destination, name="test", engine=threads_engine(), budget=Budget(1 << 30), threads=1, origin="source"
    )


def build(destination: Path, step: Step, num_nodes: int = 4) -> Dataset:
    """A dataset of nodes and whatever the step adds."""
    with builder_at(destination) as builder:
        builder.add_nodes("node", num_nodes)
        step(builder)
        return builder.finish()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("padding", [0, 3])
def test_features_of_every_dtype_lie_where_the_table_says(tmp_path: Path, dtype: str, padding: int) -> None:
    values = np.random.default_rng(0).normal(size=(11, 5)).astype(np.float32)
    encoded = encode_rows(values, dtype)
    with builder_at(tmp_path / "graph") as builder:
        builder.add_nodes("node", 11)
        stride = encoded.shape[1] + padding
        builder.add_features("node", [values[:4], values[4:]], dim=5, dtype=dtype, row_stride=stride)
        dataset = builder.finish()
    table = dataset.feature_table()
    assert table is not None
    assert (dataset.feature_dtype, dataset.feature_dim, table.num_rows) == (dtype, 5, 11)
    raw = np.fromfile(table.path, np.uint8).reshape(11, table.row_stride)
    np.testing.assert_array_equal(raw[:, : table.row_bytes], encoded)
    assert not raw[:, table.row_bytes :].any()


def test_topology_labels_and_splits_come_back(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "graph", num_nodes=50, num_edges=300)
    pairs = random_pairs(50, 300)
    topology = dataset.topology
    indptr = np.fromfile(topology.indptr_path, np.int64)
    indices = np.fromfile(topology.indices_path, topology.index_dtype)
    assert topology.index_dtype == np.uint32
    assert (topology.num_nodes, topology.num_edges, len(indptr)) == (50, 300, 51)
    for node in range(50):
        assert indices[indptr[node] : indptr[node + 1]].tolist() == sorted(pairs[0][pairs[1] == node])
    labels = dataset.labels
    assert labels is not None
    assert labels.tolist() == [node % 3 for node in range(50)]
    parts = [dataset.split(part) for part in ("train", "valid", "test")]
    assert sorted(int(node) for ids in parts if ids is not None for node in ids) == list(range(50))
    assert (dataset.num_classes, dataset.num_splits, dataset.num_nodes, dataset.num_edges) == (3, 1, 50, 300)
    assert dataset.original_ids() is None
    assert dataset.edge_ids() is None
    assert dataset.edge_weights() is None


def test_equal_input_gives_equal_bytes_and_hash(tmp_path: Path) -> None:
    one, two = make_dataset(tmp_path / "one"), make_dataset(tmp_path / "sub-two")
    assert folder_bytes(one.path) == folder_bytes(two.path)
    assert one.hash == two.hash
    assert make_dataset(tmp_path / "three", num_edges=299).hash != one.hash


def test_a_file_s_checksum_is_that_of_its_blocks_checksums(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "graph", num_nodes=300_000, dim=2)
    sums = []
    for relative, entry in sorted(dataset.manifest.files.items()):
        content = (dataset.path / relative).read_bytes()
        blocks = [xxhash.xxh3_64_intdigest(content[start : start + MIB]) for start in range(0, len(content), MIB)]
        sums.append(struct.pack(f"<{len(blocks)}Q", *blocks))
        assert entry.xxh3_64 == xxhash.xxh3_64_hexdigest(sums[-1])
    assert max(map(len, sums)) > 16
    assert (dataset.path / CHECKSUMS_NAME).read_bytes() == b"".join(sums)


def test_several_splits_are_chosen_by_number(tmp_path: Path) -> None:
    with builder_at(tmp_path / "graph") as builder:
        builder.add_nodes("node", 10)
        for number in range(3):
            builder.add_split("node", "train", [np.array([number, 9])], number, 3)
        builder.add_split("node", "test", [np.array([5])], 1, 3)
        dataset = builder.finish()
    train, test = dataset.split("train", 2), dataset.split("test", 1)
    assert train is not None
    assert test is not None
    assert (train.tolist(), test.tolist()) == ([2, 9], [5])
    assert dataset.split("test", 0) is None
    with pytest.raises(ConfigError, match="has 3 splits; choose one from 0 to 2"):
        dataset.split("train")
    with pytest.raises(ConfigError, match="no split 3; the last is 2"):
        dataset.split("train", 3)
    with pytest.raises(ConfigError, match="'val' is unknown; choose one of train, valid, test"):
        dataset.split("val")


def typed_dataset(destination: Path) -> Dataset:
    with builder_at(destination) as builder:
        builder.add_nodes("paper", 6)
        builder.add_nodes("author", 3)
        builder.add_tasks("paper", [np.array([[1.0, np.nan]] * 6)], 2)
        builder.add_original_ids("paper", [np.arange(6)[::-1]])
        writes = np.array([[2, 0, 1, 0], [5, 5, 0, 5]])
        weights = np.array([0.25, 2.0, 3.0, 4.0])
        builder.add_edge_list("writes", "author", "paper", ArrayEdges(writes), edge_id_dtype="int64", weights=weights)
        builder.add_edge_list("cites", "paper", "paper", ArrayEdges(np.zeros((2, 0), np.int64)))
        return builder.finish()


def test_a_typed_graph_has_each_type_by_name(tmp_path: Path) -> None:
    dataset = typed_dataset(tmp_path / "graph")
    writes = dataset.edges["writes"]
    edge_ids, weights = writes.edge_ids(), writes.edge_weights()
    assert edge_ids is not None
    assert weights is not None
    assert (writes.source, writes.destination, writes.topology.num_nodes) == ("author", "paper", 6)
    assert np.fromfile(writes.topology.indices_path, np.uint32).tolist() == [1, 0, 0, 2]
    assert edge_ids.tolist() == [2, 1, 3, 0]
    assert weights.tolist() == [3.0, 2.0, 4.0, 0.25]
    original, tasks = dataset.nodes["paper"].original_ids(), dataset.nodes["paper"].labels
    assert original is not None
    assert tasks is not None
    assert original.tolist() == [5, 4, 3, 2, 1, 0]
    assert tasks.shape == (6, 2)
    assert (dataset.nodes["paper"].num_tasks, dataset.nodes["paper"].num_classes) == (2, 0)
    assert dataset.edges["cites"].num_edges == 0
    assert verify(dataset.path) == []
    with pytest.raises(ConfigError, match="has 2 node types, author, paper, and only graphs of one node type"):
        _ = dataset.num_nodes
    with pytest.raises(ConfigError, match="has 2 edge types, cites, writes, and only graphs of one node type"):
        _ = dataset.topology
    assert describe(dataset)["edges"]["writes"]["max_in_degree"] == 3


def test_description_counts_what_is_there(tmp_path: Path) -> None:
    description = describe(make_dataset(tmp_path / "graph", num_nodes=50, num_edges=300))
    degrees = np.bincount(random_pairs(50, 300)[1], minlength=50)
    edges = description["edges"]["edge"]
    assert (edges["count"], edges["mean_in_degree"], edges["max_in_degree"]) == (300, 6.0, degrees.max())
    assert edges["without_in_edges"] == (degrees == 0).sum()
    assert description["nodes"]["node"]["labels"]["nodes_by_class"] == [17, 17, 16]
    assert description["bytes"] + (tmp_path / "graph/manifest.json").stat().st_size == sum(
        path.stat().st_size for path in (tmp_path / "graph").rglob("*.*") if path.is_file()
    )


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        ([[0.0, 1.0], [2.0, np.nan]], "float32", "feature 1 of node 1 is nan: features must be finite"),
        ([[0.0, -np.inf]], "int8", "feature 1 of node 0 is -inf"),
        ([[0.0], [70000.0]], "float16", "feature 0 of node 1 is 70000.0: float16 cannot hold it"),
        ([[1e300]], "float32", r"feature 0 of node 0 is 1e\+300: float32 cannot hold it"),
        ([[1.0, 1e300]], "int8", r"feature 1 of node 0 is 1e\+300: int8 cannot hold it"),
        ([[3.4e38]], "bfloat16", "bfloat16 cannot hold it"),
    ],
)
def test_features_that_cannot_be_stored_name_node_and_column(
    tmp_path: Path, values: list[list[float]], dtype: str, message: str
) -> None:
    array = np.array(values)
    with pytest.raises(SourceError, match=message):
        build(
            tmp_path / "graph",
            lambda builder: builder.add_features("node", [array], dim=array.shape[1], dtype=dtype),
            len(array),
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda builder: builder.add_nodes("other", 0), "source: the graph has no nodes"),
        (lambda builder: builder.add_nodes("../up", 3), "type name '../up' must be letters"),
        (
            lambda builder: builder.add_features("node", [np.zeros((3, 2))], dim=2, dtype="float32"),
            "has 3 feature rows for 4 nodes",
        ),
        (
            lambda builder: builder.add_features("node", [np.zeros((4, 2))], dim=2, dtype="float8"),
            "'float8' is unknown; choose one of float32, float16, bfloat16, int8",
        ),
        (
            lambda builder: builder.add_features("node", [np.zeros((4, 2))], dim=2, dtype="float32", row_stride=7),
            "row_stride 7 is less than the 8 bytes",
        ),
        (
            lambda builder: builder.add_labels("node", [np.array([0, 1]), np.array([0, 3])], num_classes=3),
            "label of node 3 is 3; labels must be from 0 to 2",
        ),
        (lambda builder: builder.add_labels("node", [np.array([0, -2, 0, 0])]), "label of node 1 is -2"),
        (
            lambda builder: builder.add_labels("node", [np.array([0, 1, 9, 0])]),
            "label 9 is out of range: only 3 classes have nodes",
        ),
        (lambda builder: builder.add_labels("node", [np.array([0, 1, 1])]), "has 3 labels for 4 nodes"),
        (lambda builder: builder.add_split("node", "valid", [np.zeros(0, np.int64)]), "split 'valid' is empty"),
        (
            lambda builder: builder.add_split("node", "train", [np.array([0]), np.array([1, 4])]),
            "split 'train' lists node 4, but nodes are numbered 0 to 3",
        ),
        (
            lambda builder: builder.add_split("node", "train", [np.array([0, 1]), np.array([2, 1])]),
            "split 'train' lists node 1 twice",
        ),
        (
            lambda builder: builder.add_edge_list(
                "edge", "node", "node", ArrayEdges(random_pairs(4, 3)), weights=np.array([1, np.nan, 1])
            ),
            "weight of edge 1 is nan",
        ),
        (
            lambda builder: builder.add_edge_list(
                "edge", "node", "node", ArrayEdges(random_pairs(4, 3)), weights=np.ones(2)
            ),
            "weights of shape (2,) for 3 edges",
        ),
        (
            lambda builder: builder.add_triples("node", "train", [np.array([[0, 0, 3]]), np.array([[0, 2, 0]])], 2),
            "triple 1 of 'train' has relation 2, but it must be from 0 to 1",
        ),
        (
            lambda builder: builder.add_triples("node", "train", [np.zeros((0, 3), np.int64)]),
            "triples 'train' are empty",
        ),
        (
            lambda builder: builder.add_triples("node", "train", [np.zeros((1, 3), np.int64)], 0),
            "triple 0 of 'train' has relation 0",
        ),
        (
            lambda builder: builder.add_tasks("node", [np.array([[0, 1]] * 3), np.array([[1, 0.5]])], 2),
            "task 1 of node 3 is 0.5: tasks must be 0, 1, or NaN for none",
        ),
        (lambda builder: builder.add_tasks("node", [np.zeros((4, 0))], 0), "labels have 0 columns"),
        # Numbers that only the format's reader refuses: never published.
        (
            lambda builder: builder.add_labels("node", [np.zeros(4, np.int64)], 2**40),
            "'num_classes' must be a whole number from 0 to 2147483648, got 1099511627776",
        ),
        (
            lambda builder: builder.add_triples("node", "train", [np.zeros((1, 3), np.int64)], 2**60),
            "'num_relations' must be a whole number from 1",
        ),
    ],
)
def test_what_breaks_a_rule_is_refused_and_nothing_is_left(tmp_path: Path, step: Step, words: str) -> None:
    with pytest.raises(DiskhopError) as caught:
        build(tmp_path / "graph", step)
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("taken", [False, True])
def test_a_builder_gives_back_what_it_reserved(tmp_path: Path, taken: bool) -> None:
    budget = Budget(1 << 30)
    if taken:
        (tmp_path / "graph").write_text("precious")
    builder = DatasetBuilder(tmp_path / "graph", name="test", engine=threads_engine(), budget=budget, threads=1)
    with pytest.raises(DestinationError) if taken else nullcontext(), builder:
        assert budget.available_bytes < budget.total_bytes
        builder.add_nodes("node", 4)
        builder.finish()
    assert budget.available_bytes == budget.total_bytes


def press_ctrl_c(builder: DatasetBuilder) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "graph", press_ctrl_c)
    assert list(tmp_path.iterdir()) == []


def test_a_destination_that_is_taken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("precious")
    for name, is_what in (("file", "no folder"), ("folder", "not a dataset")):
        with pytest.raises(DestinationError, match=f"already exists and is {is_what}.*; choose another destination"):
            make_dataset(tmp_path / name)
    with pytest.raises(DestinationError, match=r"the folder .*/missing does not exist"):
        make_dataset(tmp_path / "missing" / "graph")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder", "thesis.txt"]
    (tmp_path / "empty").mkdir()
    make_dataset(tmp_path / "empty")


def test_a_killed_builder_is_cleared_away_and_a_living_one_is_not(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from diskhop.dataset.build.builder import DATASET\n"
        "from diskhop.io.destinations import StagedDirectory\n"
        "with StagedDirectory(Path(sys.argv[1]), DATASET) as staged:\n"
        "    (staged.path / 'half').write_text('written'); print('ready', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "graph")], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with pytest.raises(DestinationError, match=r"process \d+ is writing to it"):
            make_dataset(tmp_path / "graph")
        child.kill()
    assert [path.name for path in tmp_path.iterdir()] == [".graph.partial"]
    make_dataset(tmp_path / "graph")
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


def test_too_little_space_is_said_up_front(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match=r"takes 1000 TB, only .* are free") as caught:
        build(tmp_path / "graph", lambda builder: builder.require_space(10**15))
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_dataset_is_said(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="missing: does not exist"):
        open_dataset(tmp_path / "missing")
    with pytest.raises(FormatError, match=r"is not a diskhop dataset \(it has no manifest.json\)"):
        open_dataset(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(FormatError, match="file: is not a folder"):
        open_dataset(tmp_path / "file")
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(FormatError, match="is not a diskhop dataset"):
        open_dataset(tmp_path)


def test_neither_datasets_nor_imports_load_torch() -> None:
    script = (
        "import sys, diskhop, diskhop.importing.sources, diskhop.dataset.verify, diskhop.generating\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('torch', 'torch_geometric')]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
