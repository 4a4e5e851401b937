"""`diskhop generate`: the lines that users type work, and bad options end with one line and nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diskhop.cli import run
from diskhop.dataset.dataset import open_dataset
from tests.graphs import folder_bytes

# As in the guide, a thousandth of the size.
LINES = [
    "kronecker {} --nodes 4000 --edges 60000 --dim 128 --classes 47 --train-fraction 0.1 --order hot --seed 1",
    "kronecker {} --nodes 2000 --edges 40000 --dim 0 --seed 2",
    "uniform {} --nodes 2000 --edges 30000 --dim 128 --classes 47 --train-fraction 0.1",
    "uniform {} --nodes 50 --edges 0 --dim 4",
    "sbm {} --nodes 2000 --classes 8 --homophily 0.9 --signal 2 --undirected --dtype bfloat16",
    "kronecker {} --nodes 3000 --rmat .57,.19,.19,.05 --dim 16 --dtype int8 --classes 0 --name mine --threads 2",
]


@pytest.mark.parametrize("line", LINES)
def test_lines_that_users_type(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = tmp_path / "graph"
    assert run(["generate", *line.format(graph).split(), "--memory", "100MB", "--json"]) == 0
    captured = capsys.readouterr()
    described = json.loads(captured.out)
    assert captured.err.strip().endswith("to write")
    assert len(captured.err.strip().splitlines()) == 1
    assert run(["inspect", str(graph), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == described
    assert run(["verify", str(graph)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]
    again = tmp_path / "again"
    assert run(["generate", *line.format(again).split(), "--memory", "200MB"]) == 0
    assert "generated" in capsys.readouterr().out
    assert folder_bytes(again) == folder_bytes(graph)


def test_nothing_but_kind_and_place_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", "uniform", str(tmp_path / "graph"), "--nodes", "500"]) == 0
    assert capsys.readouterr().out
    dataset = open_dataset(tmp_path / "graph")
    assert (dataset.name, dataset.num_nodes, dataset.num_edges, dataset.feature_dim) == ("uniform", 500, 5000, 128)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("star {}", "kind 'star' is unknown; the known ones are kronecker, uniform, sbm"),
        ("uniform {} --nodes 0", "--nodes must be from 1 to"),
        ("uniform {} --nodes many", "should be a valid integer"),
        ("uniform {} --edges -1", "--edges must be from 0 to"),
        ("uniform {} --dim -1", "dim must be from 0"),
        ("uniform {} --dtype float64", "--dtype must be one of float32, float16, bfloat16, int8, got 'float64'"),
        ("uniform {} --classes 1", "classes must be 0 for no labels, or at least 2"),
        (
            "uniform {} --train-fraction 1.5",
            "--train-fraction must be more than 0, at most 1, got 1.5; for example --train-fraction 0.1",
        ),
        ("uniform {} --train-fraction 0.9 --eval-fraction 0.1", "--eval-fraction must be"),
        ("uniform {} --order cold", "--order must be one of input, hot, got 'cold'; for example --order input"),
        ("uniform {} --rmat .25,.25,.25,.25", "rmat is for kind 'kronecker' only"),
        ("kronecker {} --rmat a,b,c,d", "--rmat: 'a,b,c,d' must be numbers separated by commas"),
        ("kronecker {} --rmat .5,.5,.5,.5", "rmat must be four chances a,b,c,d with sum 1"),
        ("kronecker {} --homophily .5", "homophily is for kind 'sbm' only"),
        ("sbm {} --homophily 2", "homophily must be from 0 to 1"),
        ("sbm {} --classes 16 --dim 10", "so large that a power of 2 holds all classes"),
        ("sbm {} --nodes 20", "nodes must be at least 2 for each class"),
        ("uniform {} --seed -1", "seed must be from 0"),
        ("uniform {} --memory 5XB", "size '5XB'"),
        ("uniform {} --memory 10MB --order hot", "is too small: it needs writing files 8.39 MB, hot order"),
        (
            "uniform {} --memory 10MB",
            "is too small: it needs writing files 8.39 MB, writing lists 6.29 MB, sorting edges",
        ),
        ("uniform {} --nodes 1000000000000", "are free"),
        ("uniform {} --name a\x01b", "must be 1 to 200 printable characters"),
        ("uniform {}/missing/graph", "does not exist; create it first"),
        ("uniform {} --colour red", "No such option"),
        ("uniform {} --factor 3", "--factor is for kind 'expand' only; leave it out for 'uniform'"),
        ("uniform a {}", "kind 'uniform' takes one folder, got 2; leave out a"),
        ("expand {}", "takes a dataset and a folder: diskhop generate expand GRAPH DEST --factor 4"),
        ("expand {0} {0} --nodes 5", "--nodes has no effect on kind 'expand'; leave it out"),
        ("expand {0} {0}", "does not exist"),
    ],
)
def test_bad_options_are_one_line(line: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", *line.format(tmp_path / "graph").split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("diskhop: ")
    assert len(captured.err.strip().splitlines()) == 1, captured.err
    assert words in captured.err
    assert list(tmp_path.iterdir()) == []


def test_a_graph_is_expanded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, expanded = str(tmp_path / "graph"), str(tmp_path / "expanded")
    assert run(["generate", "uniform", graph, "--nodes", "300", "--edges", "900", "--dim", "4", "--classes", "3"]) == 0
    capsys.readouterr()
    assert run(["generate", "expand", graph, expanded, "--factor", "3", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert run(["verify", expanded]) == 0
    dataset = open_dataset(expanded)
    assert (dataset.name, dataset.num_nodes, dataset.num_edges, dataset.feature_dim) == ("uniform x3", 900, 6300, 4)
    assert described["name"] == "uniform x3"
    assert run(["generate", "expand", graph, expanded]) == 2
    assert "already exists" in capsys.readouterr().err
    assert run(["generate", "expand", graph, expanded, "--factor", "2", "--overwrite"]) == 0
    assert open_dataset(expanded).num_nodes == 600


def test_what_is_there_already_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "file").write_text("mine")
    assert run(["generate", "uniform", str(tmp_path / "graph")]) == 2
    assert "already exists" in capsys.readouterr().err
    assert (tmp_path / "graph" / "file").read_text() == "mine"
