"""Kinds of labels: classes, tasks of 0 and 1, and values, from every source that can have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

import diskhop
from diskhop.cli import run
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.manifest import LABEL_KINDS
from diskhop.errors import ConfigError, SourceError
from diskhop.exporting.formats import export_dataset
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from tests.graphs import random_pairs, threads_engine

NAN = float("nan")
EDGES = random_pairs(4, 12)
COLUMN = [1.5, -2.0, NAN, 4.0]
TASKS = [[0, 1], [1, NAN], [0, 0], [NAN, 1]]
# Labels, and the kind and values that they become.
LABELS: dict[str, tuple[Any, str, Any]] = {
    "whole numbers": (np.array([0, 2, 1, -1]), "classes", [0, 2, 1, -1]),
    "whole floats": (np.array([0.0, 2, NAN, 1]), "classes", [0, 2, -1, 1]),
    "a column of 0 and 1": (np.array([[0.0], [1], [NAN], [1]]), "tasks", [[0], [1], [NAN], [1]]),
    "columns of 0 and 1": (np.array(TASKS), "tasks", TASKS),
    "floats": (np.array(COLUMN), "values", [[each] for each in COLUMN]),
    "a column of floats": (np.array(COLUMN)[:, None], "values", [[each] for each in COLUMN]),
    "columns of floats": (np.array(TASKS) / 4, "values", (np.array(TASKS) / 4).tolist()),
}


def imported(source: Path, destination: Path, **options: Any) -> Dataset:
    return import_graph(source, destination, options=ImportOptions(**options), engine=threads_engine())


def save_arrays(folder: Path, labels: NDArray[Any]) -> Path:
    folder.mkdir()
    np.savez(folder / "data.npz", edge_index=EDGES, y=labels)
    return folder


def save_tables(folder: Path, style: str, **columns: Any) -> Path:
    """Tables of 4 nodes. columns: values and their SQL type by name."""
    folder.mkdir()
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE edges AS SELECT range % 4 AS src, range * 7 % 4 AS dst FROM range(9)")
        names = ", ".join(f"{name} {kind}" for name, (_, kind) in columns.items())
        connection.execute(f"CREATE TABLE nodes (id INTEGER, {names})")
        for row, values in enumerate(zip(*(values for values, _ in columns.values()), strict=True)):
            connection.execute(
                f"INSERT INTO nodes VALUES ({row}{', ?' * len(values)})", [None if v != v else v for v in values]
            )
        for name in ("edges", "nodes"):
            connection.execute(f"COPY {name} TO '{folder / name}.{style}' (FORMAT {style})")
    return folder


def check(dataset: Dataset, kind: str, labels: Any) -> None:
    assert dataset.label_kind == kind
    np.testing.assert_array_equal(dataset.labels, np.array(labels, np.int64 if kind == "classes" else np.float32))
    assert dataset.num_tasks == (0 if kind == "classes" else len(labels[0]))
    assert dataset.num_outputs == (dataset.num_classes or dataset.num_tasks)


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("order", ["input", "hot"])
def test_labels_in_arrays_have_the_kind_of_their_values(tmp_path: Path, name: str, order: str) -> None:
    labels, kind, expected = LABELS[name]
    check(imported(save_arrays(tmp_path / "source", labels), tmp_path / "graph", order=order), kind, expected)


@pytest.mark.parametrize("name", LABELS)
def test_labels_of_pyg_have_the_kind_of_their_values(tmp_path: Path, name: str) -> None:
    labels, kind, expected = LABELS[name]
    data = Data(edge_index=torch.from_numpy(EDGES), y=torch.from_numpy(labels), num_nodes=4)
    check(diskhop.from_pyg(data, tmp_path / "graph"), kind, expected)


def test_the_kind_can_be_given(tmp_path: Path) -> None:
    source = save_arrays(tmp_path / "source", np.array([5, 3, 1, 0]))
    check(imported(source, tmp_path / "values", label_kind="values"), "values", [[5], [3], [1], [0]])
    data = Data(edge_index=torch.from_numpy(EDGES), y=torch.tensor([0, 1, 1, 0]), num_nodes=4)
    check(diskhop.from_pyg(data, tmp_path / "tasks", label_kind="tasks"), "tasks", [[0], [1], [1], [0]])
    with pytest.raises(SourceError, match=r"y: label of node 0 is 1\.5; a class must be a whole number"):
        imported(save_arrays(tmp_path / "floats", np.array(COLUMN)), tmp_path / "graph", label_kind="classes")
    with pytest.raises(SourceError, match=r"one class per node for --label-kind classes, got shape \(4, 2\)"):
        imported(save_arrays(tmp_path / "columns", np.array(TASKS)), tmp_path / "graph", label_kind="classes")
    with pytest.raises(ConfigError, match=f"label_kind must be one of {', '.join(LABEL_KINDS)}"):
        ImportOptions(label_kind="labels")


@pytest.mark.parametrize("bad", [np.inf, 1e300])
def test_values_that_float32_cannot_hold_are_refused(tmp_path: Path, bad: float) -> None:
    source = save_arrays(tmp_path / "source", np.array([0.5, 1, bad, 2]))
    with pytest.raises(SourceError, match=r"y: value 0 of node 2 is .*: values must be finite and fit float32"):
        imported(source, tmp_path / "graph")


@pytest.mark.parametrize("style", ["csv", "parquet"])
def test_labels_in_tables(tmp_path: Path, style: str) -> None:
    """One column is classes or values, several are tasks or values."""
    source = save_tables(
        tmp_path / "source",
        style,
        y=([0.0, 2.0, 1.0, NAN], "DOUBLE"),
        degree=([1, 2, 3, 4], "INTEGER"),
        price=([0.5, NAN, 3.0, -1.0], "FLOAT"),
        size=([1.0, 2.0, NAN, 0.25], "DOUBLE"),
        first=([1, 0, NAN, 0], "INTEGER"),
        second=([1, 0, 1, NAN], "TINYINT"),
    )
    check(imported(source, tmp_path / "classes", features=()), "classes", [0, 2, 1, -1])
    check(imported(source, tmp_path / "price", label=("price",), features=()), "values", [[0.5], [NAN], [3], [-1]])
    both = imported(source, tmp_path / "both", label=("price", "size"), features=(), order="hot")
    check(both, "values", [[0.5, 1], [NAN, 2], [3, NAN], [-1, 0.25]])
    tasks = imported(source, tmp_path / "tasks", label=("first", "second"), features=("degree",))
    check(tasks, "tasks", [[1, 1], [0, 0], [NAN, 1], [0, NAN]])
    forced = imported(source, tmp_path / "forced", label=("first",), label_kind="values", features=())
    check(forced, "values", [[1], [0], [NAN], [0]])
    with pytest.raises(SourceError, match="--label-kind classes needs one column of whole numbers, got first, second"):
        imported(source, tmp_path / "graph", label=("first", "second"), label_kind="classes")


def test_a_list_column_of_parquet_has_a_label_per_entry(tmp_path: Path) -> None:
    source = save_tables(tmp_path / "source", "parquet", y=([[0.0, 1.0], [1.0, None], [0.0, 0.0], None], "FLOAT[]"))
    check(imported(source, tmp_path / "graph"), "tasks", [[0, 1], [1, NAN], [0, 0], [NAN, NAN]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "id,y\n0,1.5\n" + "".join(f"{n},2.5\n" for n in range(1, 4001)) + "4001,two\n",
            r"row 4002: the label \(y\) must be a number, or empty .*'two'",
        ),
        ("id,y\n0,1.5\n1,inf\n2,3\n", r"row 2: label 'y' of node .* must be a finite number .*'inf'"),
    ],
)
def test_bad_values_in_a_table_name_the_row(tmp_path: Path, text: str, words: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "edges.csv").write_text("src,dst\n0,1\n1,2\n")
    (source / "nodes.csv").write_text(text)
    with pytest.raises(SourceError, match=words):
        imported(source, tmp_path / "graph", label=("y",), label_kind="values", features=())


@pytest.mark.fast(7)
@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("format_name", ["numpy", "graphbolt", "parquet"])
def test_an_export_comes_back_with_its_kind(tmp_path: Path, name: str, format_name: str) -> None:
    labels, kind, expected = LABELS[name]
    dataset = imported(save_arrays(tmp_path / "source", labels), tmp_path / "graph")
    exported = export_dataset(dataset, tmp_path / "out", format_name=format_name, engine=threads_engine()).path
    check(imported(exported, tmp_path / "again"), kind, expected)


def test_whole_values_come_back_from_arrays(tmp_path: Path) -> None:
    dataset = imported(
        save_arrays(tmp_path / "source", np.array([5, 3, 1, 0])), tmp_path / "graph", label_kind="values"
    )
    out = export_dataset(dataset, tmp_path / "out", format_name="numpy", engine=threads_engine()).path
    check(imported(out, tmp_path / "again"), "values", [[5], [3], [1], [0]])


def test_the_command_reports_the_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = save_arrays(tmp_path / "source", np.array(COLUMN))
    assert run(["import", str(source), str(tmp_path / "graph")]) == 0
    shown = capsys.readouterr()
    assert "1 values" in shown.out
    assert "numbers that are not whole" in shown.out + shown.err
    assert run(["inspect", str(tmp_path / "graph"), "--json"]) == 0
    assert '"values": 1' in capsys.readouterr().out
    assert run(["verify", str(tmp_path / "graph")]) == 0
