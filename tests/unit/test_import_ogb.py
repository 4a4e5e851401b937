"""Importing OGB's folders: what comes out is what went in, in either layout, and what breaks a rule is one line."""

from __future__ import annotations

import gzip
import pickle
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskhop.budget import Budget, parse_bytes
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError, DiskhopError, SourceError
from diskhop.importing.arrays.npy import file_array
from diskhop.importing.columns import ClassColumn
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from tests.examples import examples
from tests.graphs import edges_of, folder_bytes, memory_folder, threads_engine

Graph = dict[str, Any]
PARTS = ("train", "valid", "test")


def good_graph(num_nodes: int = 20, num_edges: int = 60, seed: int = 0) -> Graph:
    generator = np.random.default_rng(seed)
    order = generator.permutation(num_nodes)
    return {
        "edge_index": generator.integers(0, num_nodes, (2, num_edges)),
        "node_feat": generator.normal(size=(num_nodes, 3)).astype(np.float32),
        "node_label": np.arange(num_nodes)[:, None] % 4,
        "split": dict(zip(PARTS, np.array_split(order, 3), strict=True)),
    }


def save_text(path: Path, table: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = np.asarray(table)
    lines = "".join(",".join(map(str, row)) + "\n" for row in rows.reshape(len(rows), -1).tolist())
    path.write_bytes(gzip.compress(lines.encode(), 1))


def save_splits(folder: Path, graph: Graph, name: str = "time") -> None:
    for part, ids in graph.get("split", {}).items():
        save_text(folder / "split" / name / f"{part}.csv.gz", ids)


def save_binary(folder: Path, graph: Graph, **members: Any) -> Path:
    """Write the layout of papers100M: classes in floats, NaN for none."""
    (folder / "raw").mkdir(parents=True)
    arrays: Graph = {
        "edge_index": graph["edge_index"],
        "num_nodes_list": np.array([len(graph["node_feat"])]),
        "num_edges_list": np.array([graph["edge_index"].shape[1]]),
        "node_feat": graph["node_feat"],
        "node_year": np.zeros((len(graph["node_feat"]), 1), np.int64),
    }
    arrays |= members
    arrays = {key: array for key, array in arrays.items() if array is not None}
    np.savez_compressed(folder / "raw" / "data.npz", **arrays)
    labels = graph["node_label"]
    if labels.dtype.kind == "i":
        labels = np.where(labels < 0, np.nan, labels).astype(np.float32)
    np.savez_compressed(folder / "raw" / "node-label.npz", node_label=labels)
    save_splits(folder, graph)
    (folder / "RELEASE_v1.txt").write_text("")
    return folder


def save_csv(folder: Path, graph: Graph) -> Path:
    raw = folder / "raw"
    save_text(raw / "edge.csv.gz", graph["edge_index"].T)
    save_text(raw / "num-node-list.csv.gz", [len(graph["node_label"])])
    save_text(raw / "num-edge-list.csv.gz", [graph["edge_index"].shape[1]])
    if "node_feat" in graph:
        save_text(raw / "node-feat.csv.gz", graph["node_feat"])
    save_text(raw / "node-label.csv.gz", graph["node_label"])
    save_text(raw / "node_year.csv.gz", np.zeros(3, int))
    save_splits(folder, graph)
    (folder / "RELEASE_v1.txt").write_text("")
    return folder


def imported(source: Path, **options: Any) -> Dataset:
    return import_graph(source, source.parent / "graph", engine=threads_engine(), **options)


def table_of(dataset: Dataset, node_type: str = "node") -> Any:
    table = dataset.nodes[node_type].feature_table()
    assert table is not None
    return np.fromfile(table.path, np.float32).reshape(table.num_rows, -1)


def values(array: Any) -> Any:
    assert array is not None
    return array.tolist()


def check(dataset: Dataset, graph: Graph) -> None:
    np.testing.assert_array_equal(table_of(dataset), graph["node_feat"])
    assert values(dataset.labels) == graph["node_label"].reshape(-1).tolist()
    for part in PARTS:
        assert values(dataset.split(part)) == graph["split"][part].tolist()
    assert sorted(edges_of(dataset)) == sorted(map(tuple, graph["edge_index"].T.tolist()))


@pytest.mark.parametrize("save", [save_binary, save_csv])
def test_a_folder_of_either_layout_is_what_it_was_made_of(tmp_path: Path, save: Any) -> None:
    graph = good_graph()
    (tmp_path / "ogbn_small" / "processed").mkdir(parents=True)
    (tmp_path / "ogbn_small" / "processed" / "data_processed").write_bytes(b"\x80 never read")
    facts: dict[str, Any] = {}
    dataset = imported(save(tmp_path / "ogbn_small", graph), on_facts=facts.update)
    check(dataset, graph)
    assert (dataset.name, dataset.num_classes) == ("ogbn_small", 4)
    assert facts["left_out"] == ["node_year" if save is save_binary else "node_year.csv.gz"]
    assert facts["format"] == "ogb"


@examples(15)
@given(seed=st.integers(0, 2**32), num_nodes=st.integers(8, 60), num_edges=st.integers(1, 200))
def test_both_layouts_give_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, seed: int, num_nodes: int, num_edges: int
) -> None:
    graph = good_graph(num_nodes, num_edges, seed)
    with memory_folder(tmp_path_factory.getbasetemp()) as folder:
        one = import_graph(
            save_binary(folder / "a", graph), folder / "one", name="g", engine=threads_engine(), budget=Budget(1 << 28)
        )
        two = import_graph(
            save_csv(folder / "b", graph), folder / "two", name="g", engine=threads_engine(), budget=Budget(1 << 28)
        )
        assert folder_bytes(one.path) == folder_bytes(two.path)


@pytest.mark.parametrize("save", [save_binary, save_csv])
def test_hot_order_and_both_ways_are_as_for_arrays(tmp_path: Path, save: Any) -> None:
    graph = good_graph()
    np.savez(
        tmp_path / "arrays.npz",
        edge_index=graph["edge_index"],
        x=graph["node_feat"],
        y=graph["node_label"],
        **{f"{'val' if part == 'valid' else part}_idx": ids for part, ids in graph["split"].items()},
    )
    options = ImportOptions(order="hot", undirected=True, duplicates="drop", dtype="float16")
    other = import_graph(
        tmp_path / "arrays.npz", tmp_path / "other", name="g", options=options, engine=threads_engine()
    )
    dataset = imported(save(tmp_path / "source", graph), name="g", options=options)
    assert folder_bytes(dataset.path) == folder_bytes(other.path)


@pytest.mark.parametrize("save", [save_binary, save_csv])
def test_nodes_without_a_class_have_none(tmp_path: Path, save: Any) -> None:
    graph = good_graph()
    labels = graph["node_label"].astype(np.float64)
    labels[5:15] = np.nan
    dataset = imported(save(tmp_path / "source", graph | {"node_label": labels}))
    assert values(dataset.labels) == np.where(np.isnan(labels), -1, labels).reshape(-1).tolist()
    assert dataset.num_classes == 4


@pytest.mark.parametrize("save", [save_binary, save_csv])
def test_several_columns_of_labels_are_tasks(tmp_path: Path, save: Any) -> None:
    tasks = np.random.default_rng(0).integers(0, 2, (20, 5)).astype(np.float64)
    tasks[3, 2] = np.nan
    dataset = imported(save(tmp_path / "source", good_graph() | {"node_label": tasks}))
    assert dataset.num_tasks == 5
    np.testing.assert_array_equal(dataset.labels, tasks)


def test_a_folder_may_have_neither_features_nor_splits(tmp_path: Path) -> None:
    graph = good_graph()
    del graph["node_feat"], graph["split"]
    dataset = imported(save_csv(tmp_path / "proteins", graph))
    assert (dataset.num_nodes, dataset.feature_dim, dataset.num_splits) == (20, 0, 0)


def test_one_of_several_splits_is_named(tmp_path: Path) -> None:
    graph = good_graph()
    source = save_csv(tmp_path / "source", graph)
    save_splits(source, graph | {"split": {"train": np.array([7])}}, "sales_ranking")
    with pytest.raises(SourceError, match="has several splits, sales_ranking, time; choose one, as --split sales_rank"):
        imported(source)
    with pytest.raises(SourceError, match=r"has no split 'random'; --split can be: sales_ranking, time"):
        imported(source, options=ImportOptions(split="random"))
    dataset = imported(source, options=ImportOptions(split="sales_ranking"))
    assert values(dataset.split("train")) == [7]
    np.savez(tmp_path / "arrays.npz", edge_index=graph["edge_index"])
    with pytest.raises(ConfigError, match=r"--split does not apply to a folder with data\.npz"):
        imported(tmp_path / "arrays.npz", options=ImportOptions(split="time"))


GOOD = good_graph()


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"num_nodes_list": None}, "data.npz: has no num_nodes_list, which OGB's archives have; download it again"),
        ({"edge_index": None}, "data.npz: has no edge_index, which OGB's archives have"),
        (
            {"num_nodes_list": np.array([10, 10])},
            "num_nodes_list: has 2 graphs, and a dataset is one graph; give a folder",
        ),
        ({"num_edges_list": np.array([30, 30])}, "num_edges_list: has 2 graphs"),
        ({"num_nodes_list": np.array([0])}, "num_nodes_list: is 0, must be from 1 to"),
        ({"num_nodes_list": np.array([21])}, "node_feat: has shape (20, 3), num_nodes_list says 21 nodes"),
        ({"num_edges_list": np.array([61])}, "edge_index: has 60 edges, num_edges_list says 61"),
        ({"edge_index": GOOD["edge_index"].T}, "edge_index: must be integers of shape (2, any), got shape (60, 2)"),
        ({"edge_index": GOOD["edge_index"] + 0.5}, "edge_index: must be integers of shape (2, any)"),
        ({"edge_index": GOOD["edge_index"] + 1}, "edge_index: edge"),
        ({"node_feat": np.full((20, 3), np.nan)}, "feature 0 of node 0 is nan"),
        ({"node_feat": np.zeros(20)}, "node_feat: must be (nodes, dim)"),
        ({"node_feat": np.array([[None]] * 20)}, "node_feat: holds objects, which only a pickle can hold"),
    ],
)
def test_bad_archives_are_one_line_and_leave_nothing(tmp_path: Path, members: Graph, words: str) -> None:
    check_refused(tmp_path, save_binary(tmp_path / "source", GOOD, **members), words)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.full((20, 1), 0.5), "node_label: label of node 0 is 0.5; a class must be a whole number from 0 to"),
        (np.array([[1.0]] * 7 + [[-1.0]] * 13), "node_label: label of node 7 is -1.0; a class must be"),
        (np.array([[1.0]] * 7 + [[np.inf]] * 13), "node_label: label of node 7 is inf; a class must be"),
        (np.zeros((19, 1)), "node_label: has shape (19, 1), num_nodes_list says 20 nodes"),
        (np.zeros((20, 2, 2)), "node_label: must be classes, integers of shape (nodes)"),
        (np.full((20, 2), 0.5), "task 0 of node 0 is 0.5"),
    ],
)
def test_bad_labels_are_one_line_and_leave_nothing(tmp_path: Path, labels: Any, words: str) -> None:
    check_refused(tmp_path, save_binary(tmp_path / "source", GOOD | {"node_label": labels}), words)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("num-node-list", b"10\n10\n", "num-node-list.csv.gz: has several graphs, and a dataset is one graph"),
        ("num-node-list", b"", "num-node-list.csv.gz: must be one number from 1 to"),
        ("num-node-list", b"0\n", "num-node-list.csv.gz: must be one number from 1 to"),
        ("num-node-list", b"x\n", "num-node-list.csv.gz, line 1: must be a whole number from 0 to"),
        ("num-node-list", None, "num-node-list.csv.gz: cannot be read: No such file"),
        ("num-edge-list", b"59\n", "edge.csv.gz: has 60 edges, num-edge-list.csv.gz says 59"),
        ("edge", b"1,2\n3,20\n", "edge.csv.gz, line 2: "),
        ("edge", b"1,2\n3,x\n", "edge.csv.gz, line 2: "),
        ("node-feat", b"1,2\n" * 19, "node-feat.csv.gz: has 19 rows, num-node-list.csv.gz says 20"),
        ("node-feat", b"1,2\n" * 21, "node-feat.csv.gz: has 21 rows, num-node-list.csv.gz says 20"),
        ("node-feat", b"1,2\n" * 9 + b"1,nan\n", "node-feat.csv.gz, line 10: must be a finite number, got 'nan'"),
        ("node-label", b"1\n" * 19 + b"2.5\n", "node-label.csv.gz: label of node 19 is 2.5; a class must be"),
        ("node-label", b"1\n" * 19 + b"a\n", "node-label.csv.gz, line 20: must be a finite number, or nan for none"),
        ("split/time/valid", b"3\n20\n", "split 'valid' lists node 20"),
        ("split/time/valid", b"3\n3\n", "split 'valid' lists node 3 twice"),
        ("split/time/valid", b"3\n-1\n", "valid.csv.gz, line 2: must be a whole number from 0 to"),
        ("split/time/valid", b"", "split 'valid' is empty"),
    ],
)
def test_bad_texts_are_one_line_and_leave_nothing_finished(
    tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    source = save_csv(tmp_path / "source", GOOD)
    path = (source if "/" in name else source / "raw") / f"{name}.csv.gz"
    path.unlink()
    if content is not None:
        path.write_bytes(gzip.compress(content))
    check_refused(tmp_path, source, words, may_go_on=True)


def check_refused(folder: Path, source: Path, words: str, *, may_go_on: bool = False) -> None:
    with pytest.raises(DiskhopError) as caught:
        imported(source)
    assert words in str(caught.value)
    assert str(source) in str(caught.value)
    assert "\n" not in str(caught.value)
    left = {path.name for path in folder.iterdir()} - {"source"}
    assert left <= ({".graph.work"} if may_go_on else set())


@pytest.mark.parametrize("name", ["data.npz", "node-label.npz"])
def test_a_damaged_archive_is_one_line(tmp_path: Path, name: str) -> None:
    source = save_binary(tmp_path / "source", good_graph(2000, 6000))
    path = source / "raw" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    check_refused(tmp_path, source, f"{name}: ")


def test_a_split_of_pickles_alone_is_refused(tmp_path: Path) -> None:
    source = save_csv(tmp_path / "source", {**GOOD, "split": {}})
    (source / "split" / "time").mkdir(parents=True)
    (source / "split" / "time" / "split_dict.pt").write_bytes(pickle.dumps({}))
    check_refused(tmp_path, source, "time: has none of train.csv.gz, valid.csv.gz, test.csv.gz")


@pytest.mark.parametrize("save", [save_binary, save_csv])
def test_too_small_a_budget_is_refused_and_the_one_it_names_works(tmp_path: Path, save: Any) -> None:
    source = save(tmp_path / "source", good_graph())
    with pytest.raises(BudgetError) as caught:
        imported(source, budget=Budget(1 << 20))
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    found = re.search(r"the smallest that works is --memory (\S+)$", str(caught.value))
    assert found is not None
    check(imported(source, budget=Budget(parse_bytes(found.group(1)))), good_graph())


def test_an_archive_is_streamed_not_loaded(tmp_path: Path) -> None:
    graph = good_graph(200_000, 1_000_000) | {"node_feat": np.zeros((200_000, 100), np.float32)}
    source = save_binary(tmp_path / "source", graph)
    last: dict[str, tuple[int, int]] = {}
    budget = Budget(48 << 20)
    tracemalloc.start()
    import_graph(
        source,
        tmp_path / "graph",
        engine=threads_engine(),
        budget=budget,
        threads=1,
        progress=lambda stage, done, total: last.__setitem__(stage, (done, total)),
    )
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 40 << 20
    assert last["unpacking edges"] == (2_000_000, 2_000_000)
    assert last["features"] == (200_000, 200_000)
    assert all(done == total for done, total in last.values())


@given(labels=st.lists(st.none() | st.integers(0, 1000), min_size=1, max_size=30), dtype=st.sampled_from("efd"))
def test_classes_in_floats_are_the_integers(
    tmp_path_factory: pytest.TempPathFactory, labels: list[int | None], dtype: str
) -> None:
    with memory_folder(tmp_path_factory.getbasetemp()) as folder:
        np.save(folder / "y.npy", np.array([np.nan if each is None else each for each in labels], dtype))
        column = ClassColumn(file_array(folder / "y.npy"))
        found = np.concatenate(list(column.blocks()))
    assert found.dtype == np.int64
    assert found.tolist() == [-1 if each is None else each for each in labels]


RELATIONS = {("author", "writes", "paper"): 40, ("paper", "cites", "paper"): 30, ("paper", "has_topic", "field"): 20}
COUNTS = {"author": 12, "field": 5, "paper": 20}


def save_typed(folder: Path) -> dict[str, Any]:
    raw, generator = folder / "raw", np.random.default_rng(0)
    raw.mkdir(parents=True)
    save_text(raw / "triplet-type-list.csv.gz", np.array(list(RELATIONS)))
    lines = [",".join(COUNTS), ",".join(map(str, COUNTS.values()))]
    (raw / "num-node-dict.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    edges = {}
    for types, num_edges in RELATIONS.items():
        name = "___".join(types)
        pairs = [generator.integers(0, COUNTS[types[end]], num_edges) for end in (0, 2)]
        save_text(raw / "relations" / name / "edge.csv.gz", np.stack(pairs, axis=1))
        save_text(raw / "relations" / name / "num-edge-list.csv.gz", [num_edges])
        edges[name] = sorted(zip(*(each.tolist() for each in pairs), strict=True))
    graph = good_graph()
    save_text(raw / "node-feat" / "paper" / "node-feat.csv.gz", graph["node_feat"])
    save_text(raw / "node-label" / "paper" / "node-label.csv.gz", graph["node_label"])
    save_text(raw / "node_year" / "paper" / "node_year.csv.gz", graph["node_label"])
    for part, ids in graph["split"].items():
        save_text(folder / "split" / "time" / "paper" / f"{part}.csv.gz", ids)
    return graph | {"edges": edges}


def test_a_typed_folder_is_a_typed_graph(tmp_path: Path) -> None:
    graph = save_typed(tmp_path / "ogbn_mag")
    facts: dict[str, Any] = {}
    dataset = imported(tmp_path / "ogbn_mag", on_facts=facts.update)
    assert {name: nodes.num_nodes for name, nodes in dataset.nodes.items()} == COUNTS
    np.testing.assert_array_equal(table_of(dataset, "paper"), graph["node_feat"])
    papers = dataset.nodes["paper"]
    assert values(papers.labels) == graph["node_label"].reshape(-1).tolist()
    assert values(papers.split("valid")) == graph["split"]["valid"].tolist()
    assert typed_edges(dataset) == graph["edges"]
    assert facts["left_out"] == ["node_year"]


def typed_edges(dataset: Dataset) -> dict[str, list[tuple[int, int]]]:
    """(source, destination) of each edge, sorted, by type."""
    found = {}
    for name, edges in dataset.edges.items():
        indptr = np.fromfile(edges.topology.indptr_path, np.int64)
        sources = np.fromfile(edges.topology.indices_path, np.uint32)
        destinations = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        found[name] = sorted(zip(sources.tolist(), destinations.tolist(), strict=True))
    return found


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("num-node-dict", b"author,field,paper\n12,5\n", "must be a line of types and a line with one count per type"),
        ("num-node-dict", b"author,field,paper\n12,5,0\n", "one count per type, from 1 to"),
        (
            "num-node-dict",
            b"author,author,paper\n12,5,20\n",
            "must be a line of types and a line with one count per type",
        ),
        ("triplet-type-list", b"author,writes,book\n", "line 1: must be a type, a relation and a type of"),
        ("triplet-type-list", b"", "triplet-type-list.csv.gz: must name a relation, got nothing"),
        ("triplet-type-list", b"paper,reads,author\n", "num-edge-list.csv.gz: cannot be read: No such file"),
        ("relations/author___writes___paper/edge", b"12,3\n", "source 12"),
        ("relations/author___writes___paper/num-edge-list", b"41\n", "has 40 edges, num-edge-list.csv.gz says 41"),
        ("node-feat/paper/node-feat", b"1\n", "has 1 rows, num-node-dict.csv.gz says 20"),
    ],
)
def test_bad_typed_folders_are_one_line(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    source = tmp_path / "source"
    save_typed(source)
    (source / "raw" / f"{name}.csv.gz").write_bytes(gzip.compress(content))
    if name.endswith("/edge"):
        save_text(source / "raw" / name.replace("/edge", "/num-edge-list.csv.gz"), [1])
    check_refused(tmp_path, source, words, may_go_on=True)


def test_what_was_parsed_of_each_relation_is_gone_on_with(tmp_path: Path) -> None:
    graph = save_typed(tmp_path / "source")
    told = tmp_path / "source" / "raw" / "relations" / "paper___has_topic___field" / "num-edge-list.csv.gz"
    save_text(told, [99])
    with pytest.raises(SourceError, match=r"has 20 edges, num-edge-list.csv.gz says 99") as caught:
        imported(tmp_path / "source")
    assert "it is reused after the correction" in caught.value.__notes__[0]
    parsed = sorted((tmp_path / ".graph.work").glob("pairs-*/[!.]*"))
    assert [path.parent.name for path in parsed] == sorted(f"pairs-{'___'.join(types)}" for types in RELATIONS)
    save_text(told, [20])
    times = [path.stat().st_mtime_ns for path in parsed]
    found: list[int] = []

    def look(stage: str, done: int, total: int) -> None:
        if stage == "writing edges":
            found[:] = [path.stat().st_mtime_ns for path in parsed]

    dataset = imported(tmp_path / "source", progress=look)
    assert found == times
    assert typed_edges(dataset) == graph["edges"]
