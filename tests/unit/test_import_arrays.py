"""Importing NumPy arrays: what comes out is what went in, and what breaks a rule is one line that leaves nothing."""

from __future__ import annotations

import gzip
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.build.files import WRITER_BYTES
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.dataset.verify import verify
from diskhop.errors import BudgetError, ConfigError, DiskhopError, SourceError
from diskhop.importing.options import ImportOptions
from diskhop.importing.random_columns import RandomFeatures, RandomLabels, RandomSplit
from diskhop.importing.run import import_graph
from tests.graphs import SHARED_DATA, edges_of, folder_bytes, threads_engine

Arrays = dict[str, Any]


def good_arrays() -> Arrays:
    generator = np.random.default_rng(0)
    return {
        "edge_index": generator.integers(0, 20, (2, 60)),
        "x": generator.normal(size=(20, 3)).astype(np.float32),
        "y": np.arange(20) % 4,
        "train_idx": np.arange(8),
        "val_idx": np.arange(8, 12),
        "test_idx": np.arange(12, 20),
    }


def save(folder: Path, arrays: Arrays, style: str = "npz") -> Path:
    folder.mkdir(exist_ok=True)
    if style == "npy":
        for key, array in arrays.items():
            np.save(folder / f"{key}.npy", array)
    else:
        (np.savez if style == "npz" else np.savez_compressed)(folder / "data.npz", **arrays)
    return folder


def imported(source: Path, **options: Any) -> Dataset:
    return import_graph(source, source.parent / "graph", engine=threads_engine(), **options)


def table_of(dataset: Dataset, dtype: Any) -> Any:
    table = dataset.feature_table()
    assert table is not None
    return np.fromfile(table.path, dtype).reshape(table.num_rows, -1)


@pytest.mark.parametrize("style", ["npz", "compressed", "npy"])
def test_every_way_to_save_arrays_gives_the_same_dataset(tmp_path: Path, style: str) -> None:
    arrays = good_arrays()
    dataset = imported(save(tmp_path / "source", arrays, style), name="same")
    np.testing.assert_array_equal(table_of(dataset, np.float32), arrays["x"])
    labels, valid = dataset.labels, dataset.split("valid")
    assert labels is not None
    assert valid is not None
    assert labels.tolist() == arrays["y"].tolist()
    assert valid.tolist() == [8, 9, 10, 11]
    assert (dataset.num_nodes, dataset.num_edges, dataset.num_classes) == (20, 60, 4)
    other = import_graph(
        save(tmp_path / "plain", arrays) / "data.npz", tmp_path / "two", name="same", engine=threads_engine()
    )
    assert folder_bytes(dataset.path) == folder_bytes(other.path)


def test_the_name_is_the_sources(tmp_path: Path) -> None:
    assert imported(save(tmp_path / "karate", good_arrays())).name == "karate"


@pytest.mark.parametrize("dtype", [np.int32, np.uint64, ">i8", np.int16])
def test_edges_of_any_integer_dtype_import(tmp_path: Path, dtype: Any) -> None:
    arrays = good_arrays()
    expected = imported(save(tmp_path / "one", arrays)).hash
    arrays["edge_index"] = arrays["edge_index"].astype(dtype)
    other = import_graph(save(tmp_path / "two", arrays), tmp_path / "other", name="one", engine=threads_engine())
    assert other.hash == expected


@pytest.mark.parametrize(
    ("stored", "wanted", "dtype"),
    [
        (np.float32, None, "float32"),
        (np.float16, None, "float16"),
        (np.float64, None, "float32"),
        (np.int64, None, "float32"),
        (np.bool_, None, "float32"),
        (np.float16, "float32", "float32"),
        (np.float32, "bfloat16", "bfloat16"),
        (np.float64, "int8", "int8"),
    ],
)
def test_features_keep_their_dtype_unless_told(tmp_path: Path, stored: Any, wanted: str | None, dtype: str) -> None:
    arrays = good_arrays() | {"x": (np.arange(60).reshape(20, 3) % 2).astype(stored)}
    dataset = imported(save(tmp_path / "source", arrays), options=ImportOptions(dtype=wanted))
    assert dataset.feature_dtype == dtype
    if dtype == "float32":
        np.testing.assert_array_equal(table_of(dataset, np.float32), arrays["x"].astype(np.float32))


def test_sparse_features_become_dense_over_many_blocks(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    rows, columns = 2500, 1000
    lengths = generator.integers(0, 9, rows)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = generator.integers(0, columns, indptr[-1]).astype(np.int32)
    values = generator.normal(size=indptr[-1]).astype(np.float32)
    dense = np.zeros((rows, columns), np.float32)
    np.add.at(dense, (np.repeat(np.arange(rows), lengths), indices), values)
    arrays = {
        "edge_index": np.array([[0], [1]]),
        "x_indptr": indptr,
        "x_indices": indices,
        "x_data": values,
        "x_shape": np.array([rows, columns]),
    }
    dataset = imported(save(tmp_path / "source", arrays))
    np.testing.assert_array_equal(table_of(dataset, np.float32), dense)


def test_masks_become_splits(tmp_path: Path) -> None:
    masks = np.random.default_rng(2).random((3, 20)) < 0.5
    masks[:, 0] = True
    arrays = {"edge_index": np.array([[0], [1]]), "train_masks": masks, "test_masks": ~masks}
    dataset = imported(save(tmp_path / "source", arrays))
    assert (dataset.num_nodes, dataset.num_splits) == (20, 3)
    for number in range(3):
        train = dataset.split("train", number)
        assert train is not None
        assert train.tolist() == np.flatnonzero(masks[number]).tolist()
        assert dataset.split("valid", number) is None


def test_edges_alone_import_and_the_highest_id_is_the_last_node(tmp_path: Path) -> None:
    dataset = imported(save(tmp_path / "edges", {"edge_index": np.array([[0, 7], [3, 2]])}, "npy"))
    assert (dataset.num_nodes, dataset.num_edges, dataset.feature_dim, dataset.num_classes) == (8, 2, 0, 0)
    assert dataset.feature_table() is None
    assert dataset.labels is None
    assert dataset.split("train") is None


@pytest.mark.parametrize("empty", [np.zeros((2, 0), np.int64), np.zeros((2, 0))])
def test_a_graph_without_edges_imports(tmp_path: Path, empty: Any) -> None:
    dataset = imported(save(tmp_path / "source", good_arrays() | {"edge_index": empty}))
    assert (dataset.num_nodes, dataset.num_edges) == (20, 0)
    assert np.fromfile(dataset.topology.indptr_path, np.int64).tolist() == [0] * 21
    assert verify(dataset.path) == []


def test_tasks_and_triples_with_names_import(tmp_path: Path) -> None:
    arrays = {
        "train": np.array([[0, 1, 2], [2, 0, 1]]),
        "test": np.array([[1, 1, 1]]),
        "num_entities": np.int64(3),
        "num_relations": np.int64(2),
        "y": np.array([[0, 1], [1, 1], [0, 0]]),
    }
    source = save(tmp_path / "source", arrays)
    (source / "entities.txt.gz").write_bytes(gzip.compress("one\ntwö\nthree".encode()))
    dataset = imported(source)
    triples, tasks = dataset.triples("train"), dataset.labels
    assert triples is not None
    assert tasks is not None
    assert triples.tolist() == arrays["train"].tolist()
    assert dataset.triples("valid") is None
    assert dataset.names("entities") == ["one", "twö", "three"]
    assert dataset.names("relations") is None
    assert (dataset.num_edges, dataset.num_relations, dataset.num_tasks) == (0, 2, 2)
    assert tasks.dtype == np.float32
    with pytest.raises(ConfigError, match="no edge lists, only triples"):
        _ = dataset.topology


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32, np.float64, np.bool_])
def test_columns_of_zeros_and_ones_are_tasks(tmp_path: Path, dtype: Any) -> None:
    values = np.arange(60).reshape(20, 3) % 2
    dataset = imported(save(tmp_path / "source", good_arrays() | {"y": values.astype(dtype)}))
    labels = dataset.labels
    assert (dataset.num_tasks, dataset.num_classes) == (3, 0)
    np.testing.assert_array_equal(labels, values.astype(np.float32))


def test_a_task_without_a_label_is_nan(tmp_path: Path) -> None:
    dataset = imported(
        save(tmp_path / "source", good_arrays() | {"y": np.array([[0.0], [1.0], [np.nan]] * 6 + [[1]] * 2)})
    )
    labels = dataset.labels
    assert labels is not None
    assert (dataset.num_tasks, labels.dtype.name, int(np.isnan(labels).sum())) == (1, "float32", 6)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int8, np.bool_])
def test_one_column_of_integers_is_classes_as_ogb_stores_them(tmp_path: Path, dtype: Any) -> None:
    classes = (np.arange(20) % 2).astype(dtype)
    flat = imported(save(tmp_path / "flat", good_arrays() | {"y": classes}), name="same")
    source = save(tmp_path / "column", good_arrays() | {"y": classes[:, None]})
    column = import_graph(source, tmp_path / "other", name="same", engine=threads_engine())
    assert (column.num_classes, column.num_tasks) == (2, 0)
    assert column.hash == flat.hash


def bad(**changes: Any) -> Arrays:
    arrays = good_arrays() | changes
    return {key: array for key, array in arrays.items() if array is not None}


def with_value(array: Any, index: Any, value: Any) -> Any:
    array = array.copy()
    array[index] = value
    return array


GOOD = good_arrays()
TASKS = np.arange(40.0).reshape(20, 2) % 2


@pytest.mark.parametrize("key", ["train_idx", "train_mask"])
def test_which_nodes_a_split_has_is_reserved_and_refused_up_front(tmp_path: Path, key: str) -> None:
    train = np.arange(20_000_000) == 7 if key == "train_mask" else np.array([7])
    arrays = {"edge_index": np.zeros((2, 1), np.int64), "num_nodes": np.array(20_000_000), key: train}
    source = save(tmp_path / "source", arrays, "npy")
    stages: list[str] = []
    with pytest.raises(BudgetError, match="nodes of a split 20 MB") as caught:
        imported(source, budget=Budget(25_000_000), progress=lambda stage, done, total: stages.append(stage))
    smallest_bytes = WRITER_BYTES + 20_000_000
    assert (stages, caught.value.smallest_bytes) == ([], smallest_bytes)
    budget = Budget(smallest_bytes)
    imported(source, budget=budget)
    assert budget.table()["nodes of a split"] == 20_000_000


def test_one_mask_for_each_part_is_one_split(tmp_path: Path) -> None:
    arrays = {key: value for key, value in GOOD.items() if not key.endswith("_idx")}
    for part in ("train", "val", "test"):
        mask = np.zeros(20, bool)
        mask[GOOD[f"{part}_idx"]] = True
        arrays[f"{part}_mask"] = mask
    (tmp_path / "source").mkdir()
    np.savez(tmp_path / "source" / "data.npz", **arrays)
    dataset = import_graph(tmp_path / "source", tmp_path / "made", engine=threads_engine())
    assert dataset.num_splits == 1
    for part, name in (("train", "train"), ("val", "valid"), ("test", "test")):
        np.testing.assert_array_equal(dataset.split(name), np.sort(GOOD[f"{part}_idx"]))


def test_transposed_pairs_give_the_same_graph(tmp_path: Path) -> None:
    transposed = {**GOOD, "edge_index": np.asfortranarray(GOOD["edge_index"])}
    hashes = []
    for number, arrays in enumerate((GOOD, transposed)):
        source = tmp_path / str(number) / "graph"
        source.mkdir(parents=True)
        np.savez(source / "data.npz", **arrays)
        dataset = import_graph(source, tmp_path / str(number) / "made", engine=threads_engine())
        hashes.append(dataset.hash)
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (
            bad(edge_index=with_value(GOOD["edge_index"], (0, 17), 20)),
            "edge 17 has source 20, but nodes are numbered 0 to 19",
        ),
        (bad(edge_index=with_value(GOOD["edge_index"], (1, 59), -1)), "edge 59 has destination -1"),
        (bad(edge_index=GOOD["edge_index"].astype(float)), "edge_index: must be integers of shape (2, any)"),
        (bad(edge_index=np.ascontiguousarray(GOOD["edge_index"].T)), "got shape (60, 2)"),
        (bad(x=np.asfortranarray(GOOD["x"])), "x: is stored in Fortran order"),
        (bad(edge_index=np.array([[0], [1]], object)), "edge_index: holds objects, which only a pickle can hold"),
        (bad(edge_index=np.zeros((2, 3), "c16")), "edge_index: holds dtype '<c16'"),
        (bad(edge_index=np.zeros((2, 3), "i4,i4")), "edge_index: holds dtype"),
        (bad(edge_index=None), "has neither edge_index nor triples"),
        (bad(x=with_value(GOOD["x"], (6, 2), np.nan)), "feature 2 of node 6 is nan"),
        (bad(x=with_value(GOOD["x"], (0, 0), np.inf)), "feature 0 of node 0 is inf"),
        (bad(x=GOOD["x"][:19]), "differ in the number of nodes (x 19, y 20)"),
        (bad(x=GOOD["x"][:, :0]), "must be (nodes, dim) with dim from 1 to 16777216"),
        (bad(num_nodes=np.int64(21)), "differ in the number of nodes (num_nodes 21, x 20, y 20)"),
        (bad(num_nodes=np.zeros(2, int)), "num_nodes: must be one whole number"),
        (bad(y=with_value(GOOD["y"], 3, -2)), "label of node 3 is -2"),
        (bad(y=with_value(GOOD["y"], 3, 500)), "label 500 is out of range: only 5 classes have nodes"),
        (bad(y=GOOD["y"], num_classes=np.int64(3)), "label of node 3 is 3; labels must be from 0 to 2"),
        (
            bad(y=with_value(GOOD["y"].astype(float), 3, -1.0)),
            "y: label of node 3 is -1.0; a class must be a whole number",
        ),
        (bad(y=np.zeros((20, 0))), "or tasks or values of shape (nodes, 1 to 16777216), got shape (20, 0) of float64"),
        (bad(y=np.zeros((20, 0), int)), "got shape (20, 0) of int64"),
        (bad(y=np.zeros((20, 1, 1), int)), "got shape (20, 1, 1) of int64"),
        (bad(y=np.int64(3)), "got shape () of int64"),
        (bad(y=with_value(TASKS, (6, 1), np.inf)), "task 1 of node 6 is inf: tasks must be 0, 1, or NaN for none"),
        (bad(y=with_value(TASKS, (6, 1), 1e300)), "task 1 of node 6 is 1e+300: tasks must be"),
        (bad(y=with_value(TASKS, (0, 0), 2.0)), "task 0 of node 0 is 2.0: tasks must be"),
        (bad(y=with_value(TASKS.astype(int), (19, 1), -1)), "task 1 of node 19 is -1: tasks must be"),
        (bad(y=with_value(TASKS.astype(np.uint64), (7, 0), 2)), "task 0 of node 7 is 2: tasks must be"),
        (bad(y=with_value(GOOD["y"].astype(float)[:, None], (3, 0), -2)), "label of node 3 is -2.0; a class must be"),
        (bad(y=with_value(GOOD["y"], 3, -2)[:, None]), "label of node 3 is -2"),
        (bad(num_classes=np.int64(2**40)), "num_classes: is 1099511627776, must be from 1 to 2147483648"),
        (bad(num_classes=np.int64(-4)), "num_classes: is -4, must be from 1"),
        (
            bad(train=np.zeros((1, 3), int), num_relations=np.int64(2**60)),
            "num_relations: is 1152921504606846976, must",
        ),
        (bad(train=np.zeros((1, 3), int), num_relations=np.int64(0)), "num_relations: is 0, must be from 1"),
        ({"edge_index": np.zeros((2, 1), int), "x": np.zeros((1, 2**24 + 1), bool)}, "got shape (1, 16777217)"),
        (bad(val_idx=None, val_masks=np.zeros((0, 20), bool)), "val_masks: has no splits (shape (0, 20))"),
        (bad(train_idx=None, train_masks=np.zeros((0, 20))), "train_masks: has no splits (shape (0, 20))"),
        (bad(val_idx=np.zeros(0, np.int64)), "split 'valid' is empty"),
        (bad(val_idx=np.array([3, 20])), "split 'valid' lists node 20"),
        (bad(val_idx=np.array([-1])), "split 'valid' lists node -1"),
        (bad(val_idx=np.array([3, 3])), "split 'valid' lists node 3 twice"),
        (bad(val_masks=np.ones((2, 20), bool)), "val_masks too; keep one"),
        (bad(val_idx=None, val_masks=np.ones((2, 20), bool)), "has 2 splits of 'valid' but 1 of other parts"),
        (bad(val_idx=None, val_masks=np.ones((1, 19), bool)), "differ in the number of nodes"),
        (bad(val_idx=None, val_masks=np.zeros((1, 20), bool)), "split 'valid' is empty"),
        (bad(x_indptr=np.zeros(21, int)), "has both x and"),
        (bad(x=None, x_indptr=np.zeros(21, int)), "sparse features need all of x_indptr"),
        (bad(X=GOOD["x"]), "X: is not an array that diskhop knows; remove it"),
        (bad(triples=np.array([[0, 1, 20]])), "triple 0 of 'all' has destination 20"),
        (bad(edge_weight=np.zeros(59)), "edge_weight: must be numbers of shape (60), got shape (59,) of float64"),
        (bad(edge_weight=with_value(np.zeros(60), 3, np.nan)), "weight of edge 3 is nan"),
        (bad(edge_time=np.zeros(60)), "edge_time: must be integers of shape (60), got shape (60,) of float64"),
        (bad(original_ids=np.arange(19)), "differ in the number of nodes"),
        (bad(original_ids=np.arange(20) // 2), "original_ids: entry 1 is 0, ids must be 0 or more and ascend"),
        (bad(original_ids=np.arange(20) - 1), "original_ids: entry 0 is -1, ids must be 0 or more and ascend"),
        ({"edge_index": np.zeros((2, 0), int)}, "the graph has no nodes"),
        ({"edge_index": np.zeros((2, 0), int), "num_nodes": np.int64(0)}, "the graph has no nodes"),
        ({"edge_index": np.array([[-1], [-1]])}, "the graph has no nodes"),
        (
            {"edge_index": np.array([[0], [2**63 - 1]])},
            "id 9223372036854775807 of nodes 'node' is out of range: ids must be less",
        ),
        ({"edge_index": np.array([[0], [1]]), "num_nodes": np.int64(-3)}, "num_nodes: is -3, must be from 0"),
    ],
)
def test_bad_arrays_are_one_line_and_leave_nothing(tmp_path: Path, arrays: Arrays, words: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    np.savez(source / "data.npz", **arrays)
    with pytest.raises(SourceError) as caught:
        imported(source)
    assert words in str(caught.value)
    assert str(source) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


SPARSE = {
    "edge_index": np.array([[0], [1]]),
    "x_indptr": np.array([0, 1, 3]),
    "x_indices": np.array([0, 1, 2]),
    "x_data": np.array([1.0, 2.0, 3.0]),
    "x_shape": np.array([2, 3]),
}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("x_indptr", np.array([0, 3, 2]), "x_indptr: must ascend from 0 to 3"),
        ("x_indptr", np.array([1, 2, 3]), "x_indptr: starts at 1"),
        ("x_indptr", np.array([0, 1, 2]), "x_indptr: ends at 2, x_indices has 3 entries"),
        ("x_indptr", np.array([0, 1, 9]), "x_indptr: must ascend from 0 to 3"),
        ("x_indptr", np.array([0, 3]), "x_indptr: must be 3 integers"),
        ("x_indices", np.array([0, 1, 3]), "entry 2 is column 3, but columns are numbered 0 to 2"),
        ("x_indices", np.array([0, -1, 2]), "entry 1 is column -1"),
        ("x_data", np.array([1.0, 2.0]), "x_indices: must be integers in one dimension, one for each value of x_data"),
        ("x_shape", np.array([2, 0]), "x_shape: is (2, 0)"),
        ("x_shape", np.array([2, 2**24 + 1]), "x_shape: is (2, 16777217); features need at least 1 row and 1 to"),
        ("x_shape", np.array([2, 3, 4]), "x_shape: must be two whole numbers"),
        ("x_data", np.array([1.0, np.nan, 3.0]), "feature 1 of node 1 is nan"),
    ],
)
def test_bad_sparse_features_are_one_line(tmp_path: Path, key: str, value: Any, words: str) -> None:
    with pytest.raises(SourceError) as caught:
        imported(save(tmp_path / "source", SPARSE | {key: value}))
    assert words in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"not gzip", "entities.txt.gz, line 1: gzip must match its checksum"),
        # Without the time: the names of tests are made of this, and must be the same in each process that runs them.
        (gzip.compress(b"a\nb\n", mtime=0), "entities.txt.gz: has 2 names for 3 ids"),
        (gzip.compress(b"a\n\xff\nc\n", mtime=0), "entities.txt.gz: cannot be read: 'utf-8' codec"),
        (gzip.compress(b"a\nb\nc\n", mtime=0)[:-9], "entities.txt.gz, line 1: gzip must end with its checksum"),
    ],
)
def test_bad_names_are_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    source = save(tmp_path / "source", {"train": np.array([[0, 0, 2]]), "num_entities": np.int64(3)})
    (source / "entities.txt.gz").write_bytes(content)
    with pytest.raises(SourceError, match=words):
        imported(source)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_unknown_sources_formats_and_dtypes_list_the_known(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nowhere: does not exist"):
        imported(tmp_path / "nowhere")
    (tmp_path / "text.doc").write_text("a,b")
    with pytest.raises(SourceError, match=r"format not recognised; if it is a text .*name the format: --format edges"):
        imported(tmp_path / "text.doc")
    with pytest.raises(ConfigError, match=r"--format 'dgl' is unknown; use one of .*numpy"):
        imported(tmp_path / "text.doc", format_name="dgl")
    with pytest.raises(ConfigError, match="dtype must be one of float32, float16, bfloat16, int8, got 'float8'"):
        imported(save(tmp_path / "source", good_arrays()), options=ImportOptions(dtype="float8"))
    np.save(tmp_path / "source" / "x.npy", np.zeros(3))
    with pytest.raises(SourceError, match=r"has data.npz and x.npy; keep one or the other"):
        imported(tmp_path / "source")


def test_a_compressed_archive_is_streamed_not_loaded(tmp_path: Path) -> None:
    features = np.zeros((200_000, 100), np.float32)
    arrays = {"edge_index": np.array([[0], [1]]), "x": features}
    source = save(tmp_path / "source", arrays, "compressed")
    tracemalloc.start()
    dataset = imported(source)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert dataset.num_nodes == 200_000
    assert peak_bytes < features.nbytes / 2


def test_progress_ends_at_its_total(tmp_path: Path) -> None:
    last: dict[str, tuple[int, int]] = {}
    imported(
        save(tmp_path / "source", good_arrays()),
        progress=lambda stage, done, total: last.__setitem__(stage, (done, total)),
    )
    assert last == {
        "unpacking edges": (120, 120),
        "reading edges": (60, 60),
        "writing edges": (60, 60),
        "features": (20, 20),
        "labels": (20, 20),
    }


def test_every_stage_of_an_import_with_all_there_is_tells_how_far_it_is(tmp_path: Path) -> None:
    arrays = good_arrays() | {
        "edge_weight": np.ones(60, np.float32),
        "edge_time": np.arange(60),
        "original_ids": 2 * np.arange(20),
        "num_nodes": np.int64(20),
    }
    source = save(tmp_path / "source", arrays)
    (source / "nodes.txt.gz").write_bytes(gzip.compress(b"name\n" * 20))
    last: dict[str, tuple[int, int]] = {}
    options = ImportOptions(order="hot")
    imported(source, options=options, progress=lambda stage, done, total: last.__setitem__(stage, (done, total)))
    assert last == {
        "unpacking edges": (120, 120),
        "counting neighbours": (60, 60),
        "edge weights": (60, 60),
        "edge times": (60, 60),
        "reading edges": (60, 60),
        "writing edges": (60, 60),
        "features": (20, 20),
        "labels": (20, 20),
        "original ids": (20, 20),
        "names of nodes": (20, 20),
    }


def test_what_breaks_a_rule_is_told_with_its_array(tmp_path: Path) -> None:
    for key, values, words in (
        ("x", np.full((20, 3), np.nan, np.float32), "data.npz: x: feature 0 of node 0 is nan"),
        ("y", np.full(20, -7), "data.npz: y: label of node 0 is -7"),
        ("test_idx", np.array([5, 99]), "data.npz: test_idx: split 'test' lists node 99"),
    ):
        with pytest.raises(SourceError) as caught:
            imported(save(tmp_path / "source", good_arrays() | {key: values}))
        assert words in str(caught.value)


def test_a_list_of_names_that_unpacks_to_any_length_is_left_early(tmp_path: Path) -> None:
    source = save(tmp_path / "source", {"train": np.array([[0, 0, 2]]), "num_entities": np.int64(3)})
    (source / "entities.txt.gz").write_bytes(gzip.compress(b"a\n" * (20 << 20)))
    with pytest.raises(SourceError, match=r"entities.txt.gz: has \d+ names for 3 ids") as caught:
        imported(source)
    assert int(str(caught.value).split("has ")[1].split()[0]) < 1 << 20


@pytest.mark.fast(6)
@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="../shared/data is absent")
@pytest.mark.parametrize(
    ("name", "nodes", "edges", "dim", "classes", "splits"),
    [
        ("cora", 2708, 10556, 1433, 7, 1),
        ("heterophilous-tolokers", 11758, 1038000, 10, 2, 10),
        ("heterophilous-minesweeper", 10000, 78804, 7, 2, 10),
        ("oewn", 107525, 326108, 256, 45, 1),
        ("email-Enron", 36692, 183831, 0, 0, 0),
        ("ego-Twitter-undirected", 81306, 1342310, 0, 0, 0),
        ("cnr-2000", 325557, 3216152, 0, 0, 0),
        ("fb15k-237", 14541, 0, 0, 0, 0),
        ("wn18rr", 40943, 0, 0, 0, 0),
        ("codex-s", 2034, 0, 0, 0, 0),
        ("umls", 135, 0, 0, 0, 0),
        ("kinship", 104, 0, 0, 0, 0),
    ],
)
def test_real_graphs_import_with_their_counts(
    tmp_path: Path, name: str, nodes: int, edges: int, dim: int, classes: int, splits: int
) -> None:
    dataset = import_graph(SHARED_DATA / name, tmp_path / "graph", engine=threads_engine())
    assert (dataset.num_nodes, dataset.num_edges, dataset.feature_dim) == (nodes, edges, dim)
    assert (dataset.num_classes, dataset.num_splits) == (classes, splits)
    assert verify(dataset.path) == []
    with np.load(SHARED_DATA / name / "data.npz") as arrays:
        if edges:
            sources, destinations = arrays["edge_index"]
            order = np.lexsort((sources, destinations))
            np.testing.assert_array_equal(np.fromfile(dataset.topology.indices_path, np.uint32), sources[order])
            degrees = np.diff(np.fromfile(dataset.topology.indptr_path, np.int64))
            np.testing.assert_array_equal(degrees, np.bincount(destinations, minlength=nodes))
        else:
            parts = {part: dataset.triples(part) for part in ("train", "valid", "test")}
            for part, triples in parts.items():
                np.testing.assert_array_equal(triples, arrays[part])
            assert dataset.num_relations == arrays["num_relations"]
            entities = dataset.names("entities")
            assert entities is not None
            assert len(entities) == nodes
        if "x" in arrays:
            np.testing.assert_array_equal(table_of(dataset, arrays["x"].dtype), arrays["x"])
        if "train_masks" in arrays:
            np.testing.assert_array_equal(dataset.split("train", 9), np.flatnonzero(arrays["train_masks"][9]))


def test_open_gives_what_import_returned(tmp_path: Path) -> None:
    dataset = imported(save(tmp_path / "source", good_arrays()))
    assert open_dataset(str(dataset.path)).hash == dataset.hash


def test_every_error_of_import_is_of_ours(tmp_path: Path) -> None:
    """A source that cannot be read at all, as far as one can make that as root: a folder named like a file."""
    (tmp_path / "source" / "data.npz").mkdir(parents=True)
    with pytest.raises(DiskhopError, match=r"data.npz: is not a regular file"):
        imported(tmp_path / "source")


def test_hot_order_moves_all_that_nodes_have(tmp_path: Path) -> None:
    arrays = good_arrays()
    arrays |= {"train": np.array([[0, 1, 2], [3, 0, 19]])}
    source = save(tmp_path / "source", arrays)
    dataset = imported(source, options=ImportOptions(order="hot"))
    original = dataset.original_ids()
    assert original is not None
    degrees = np.bincount(arrays["edge_index"][0], minlength=20)
    assert original.tolist() == sorted(range(20), key=lambda node: (-degrees[node], node))
    np.testing.assert_array_equal(table_of(dataset, np.float32), arrays["x"][original])
    labels, train = dataset.labels, dataset.split("train")
    assert labels is not None
    assert train is not None
    assert labels.tolist() == arrays["y"].tolist()
    assert train.tolist() == arrays["train_idx"].tolist()
    triples = np.fromfile(dataset.path / "triples/train.bin", np.int64).reshape(-1, 3)
    assert original[triples[:, [0, 2]]].tolist() == [[0, 2], [3, 19]]
    assert triples[:, 1].tolist() == [1, 0]
    by_ids = dataset.triples("train")
    assert by_ids is not None
    assert by_ids.tolist() == [[0, 1, 2], [3, 0, 19]]
    edges = [(original[source], original[node]) for source, node in edges_of(dataset)]
    assert sorted(edges) == sorted(map(tuple, arrays["edge_index"].T.tolist()))


@pytest.mark.parametrize("name", ["undirected", "self_loops", "duplicates"])
def test_edges_of_arrays_are_tidied_like_those_of_text(tmp_path: Path, name: str) -> None:
    pairs = np.array([[0, 1, 1, 2, 0, 1], [1, 0, 1, 2, 1, 1]])
    (tmp_path / "text.csv").write_text("".join(f"{source},{node}\n" for source, node in pairs.T.tolist()))
    options = ImportOptions(**{name: True if name == "undirected" else "drop"})  # type: ignore[arg-type]
    text = import_graph(tmp_path / "text.csv", tmp_path / "one", name="g", engine=threads_engine(), options=options)
    arrays = save(tmp_path / "arrays", {"edge_index": pairs})
    other = import_graph(arrays, tmp_path / "two", name="g", engine=threads_engine(), options=options)
    assert folder_bytes(text.path) == folder_bytes(other.path)


def test_a_graph_without_features_gets_random_ones(tmp_path: Path) -> None:
    source = save(tmp_path / "source", {"edge_index": good_arrays()["edge_index"]})
    dataset = imported(source, options=ImportOptions(random_features=64, dtype="float16"))
    features = table_of(dataset, np.float16).astype(np.float64)
    assert features.shape == (20, 64)
    assert abs(features.mean()) < 0.1
    assert 0.9 < features.std() < 1.1
    hot = import_graph(
        source, tmp_path / "hot", engine=threads_engine(), options=ImportOptions(random_features=64, order="hot")
    )
    original = hot.original_ids()
    assert original is not None
    np.testing.assert_array_equal(table_of(hot, np.float32)[np.argsort(original)].astype(np.float16), features)
    with pytest.raises(ConfigError, match="nodes 'node' have 3; remove it"):
        import_graph(
            save(tmp_path / "two", good_arrays()),
            tmp_path / "three",
            engine=threads_engine(),
            options=ImportOptions(random_features=4),
        )
    with pytest.raises(
        ConfigError, match=r"random_features must be from 1 to .*, got 0; for example random_features=128"
    ):
        ImportOptions(random_features=0)


def test_a_graph_without_labels_gets_random_ones(tmp_path: Path) -> None:
    source = save(tmp_path / "source", {"edge_index": good_arrays()["edge_index"]})

    def drawn(name: str, **options: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
        wanted = ImportOptions(random_labels=4, **options)
        dataset = import_graph(source, tmp_path / name, engine=threads_engine(), options=wanted)
        assert dataset.num_classes == 4
        labels, train_ids = dataset.labels, dataset.split("train")
        assert labels is not None
        assert train_ids is not None
        return labels, np.sort(np.asarray(train_ids))

    labels, train_ids = drawn("first")
    assert set(labels.tolist()) == {0, 1, 2, 3}
    assert len(train_ids) == 2  # a tenth of 20 nodes
    for again in (drawn("second", seed=0), drawn("hot", order="hot")):
        np.testing.assert_array_equal(again[0], labels)
        np.testing.assert_array_equal(again[1], train_ids)
    others, more_ids = drawn("other", seed=1, train_fraction=0.5)
    assert len(np.unique(more_ids)) == 10
    assert not np.array_equal(others, labels)


def test_random_labels_are_as_likely_as_each_other() -> None:
    labels = np.concatenate(list(RandomLabels(200_000, 5, 3).blocks()))
    assert np.abs(np.bincount(labels) / 200_000 - 0.2).max() < 0.005
    ids = np.concatenate(list(RandomSplit(200_000, 0.3, 3).blocks()))
    assert len(ids) == 60_000
    assert (np.diff(ids) > 0).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"random_labels": 5}, "--random-labels 5 requires a graph without labels, this one has labels; remove it"),
        ({"random_labels": 1}, "random_labels must be from 2 to"),
        ({"random_labels": 5, "train_fraction": 0.0}, "train_fraction must be more than 0, at most 1"),
        ({"train_fraction": 0.5}, "--train-fraction has no effect without --random-labels; add --random-labels 16"),
        ({"seed": 5}, "--seed has no effect without random labels or features; add --random-labels 16"),
    ],
)
def test_labels_that_are_there_stay(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    source = save(tmp_path / "source", good_arrays())
    with pytest.raises(ConfigError, match=re.escape(words)):
        import_graph(source, tmp_path / "graph", engine=threads_engine(), options=ImportOptions(**options))
    assert not (tmp_path / "graph").exists()


def test_a_split_that_is_there_stays(tmp_path: Path) -> None:
    arrays = {key: value for key, value in good_arrays().items() if key != "y"}
    source = save(tmp_path / "source", arrays)
    with pytest.raises(ConfigError, match="--train-fraction requires a graph without a split, this one has train"):
        import_graph(
            source,
            tmp_path / "graph",
            engine=threads_engine(),
            options=ImportOptions(random_labels=3, train_fraction=0.5),
        )
    dataset = import_graph(source, tmp_path / "graph", engine=threads_engine(), options=ImportOptions(random_labels=3))
    train_ids = dataset.split("train")
    assert train_ids is not None
    np.testing.assert_array_equal(np.asarray(train_ids), arrays["train_idx"])


def test_random_features_are_the_same_from_any_row_on() -> None:
    features = RandomFeatures(30_000, 50)
    whole = np.concatenate(list(features.blocks()))
    for first_row in (0, 1, 25_000, 29_999):
        np.testing.assert_array_equal(np.concatenate(list(features.blocks_from(first_row))), whole[first_row:])
