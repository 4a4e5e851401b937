"""Names with line feeds, tabs, quotes and backslashes: from a Parquet table through training to joined predictions."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from diskhop.cli import run
from diskhop.dataset.dataset import open_dataset
from tests.graphs import random_pairs

ODD = ["a\nb", "a\\nb", "\n", "tab\tin", "c\r\nd", "\\", 'q"uo"te', "two\n\nfeeds\\\n"]
NAMES = [*ODD, *(f"node {number}" for number in range(32))]


@pytest.fixture(scope="module")
def trained(module_folder: Path) -> Path:
    """A folder with the tables `source`, and `run` on the graph that they are."""
    source = module_folder / "source"
    source.mkdir()
    count = len(NAMES)
    ends = [[NAMES[place] for place in end] for end in random_pairs(count, 200)]
    pq.write_table(pa.table({"source": ends[0], "target": ends[1]}), source / "edges.parquet")
    nodes = {
        "id": NAMES,
        "f": np.arange(count) % 5 / 4,
        "class": [("yes\nno", "no\\n")[row % 2] for row in range(count)],
    }
    nodes["split"] = [("train", "valid", "test")[row % 3] for row in range(count)]
    pq.write_table(pa.table(nodes), source / "nodes.parquet")
    graph = str(module_folder / "graph")
    assert run(["import", str(source), graph, "--order", "hot"]) == 0
    options = "--model sage --hidden 4 --layers 1 --fanout 3 --epochs 1 --batch-size 20 --memory 100MB"
    assert run(["train", graph, *options.split(), "--out", str(module_folder / "run")]) == 0
    return module_folder


@pytest.mark.parametrize("format_name", ["parquet", "tsv"])
def test_predictions_join_the_table_that_was_imported(trained: Path, tmp_path: Path, format_name: str) -> None:
    out = tmp_path / "out"
    assert run(["predict", str(trained / "run"), "--out", str(out), "--format", format_name]) == 0
    read = f"'{out}/*.parquet'"
    if format_name == "tsv":
        read = f"read_csv('{out}/*.tsv', delim='\t', quote='\"', escape='\"', header=true, new_line='\\n')"
    with duckdb.connect() as connection:
        found = connection.sql(
            f"SELECT n.id, p.class FROM '{trained}/source/nodes.parquet' n JOIN {read} p ON n.id = p.id"
        ).fetchall()
    assert sorted(name for name, _ in found) == sorted(NAMES)
    assert {each for _, each in found} <= {"yes\nno", "no\\n"}


def test_lines_of_predicted_ids_are_a_file_of_nodes(trained: Path, tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    assert run(["predict", str(trained / "run"), "--out", str(first), "--format", "npy"]) == 0
    lines = (first / "ids.txt").read_bytes().split(b"\n")[: len(ODD)]
    assert lines[:3] == [b"a\\nb", b"a\\\\nb", b"\\n"]
    # A name may also stand as it is, which a line feed alone cannot.
    (tmp_path / "few.txt").write_bytes(b"\n".join([*lines[1:], b"tab\tin", b"node 0\r"]))
    arguments = ["predict", str(trained / "run"), "--out", str(again), "--nodes", str(tmp_path / "few.txt")]
    assert run(arguments) == 0
    assert sorted(pq.read_table(again)["id"].to_pylist()) == sorted([*ODD[1:], "node 0"])


def test_exports_keep_the_names_or_say_which_they_cannot(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = open_dataset(trained / "graph")
    assert run(["export", str(graph.path), str(tmp_path / "tables"), "--format", "parquet"]) == 0
    assert pq.read_table(tmp_path / "tables/nodes.parquet")["name"].to_pylist() == NAMES
    capsys.readouterr()
    assert run(["export", str(graph.path), str(tmp_path / "arrays"), "--format", "numpy"]) == 2
    assert ".txt: name 1 has a line feed, which plain lines cannot have; use Parquet" in capsys.readouterr().err
    assert not (tmp_path / "arrays").exists()
