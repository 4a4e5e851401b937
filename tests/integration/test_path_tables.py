"""Hop tables along paths over types: equal to plain products, the same by any budget, and trained on."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch_geometric.data import HeteroData

import diskhop
from diskhop.cli import run as run_command
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError
from diskhop.hops.path_tables import _PART_BYTES
from diskhop.hops.paths import PathSpec
from diskhop.hops.tables import HopTables
from diskhop.runs.plan import plan_run
from diskhop.runs.start import train
from tests.runs import InterruptedRunError, _Interrupter, assert_same_run, small_graph
from tests.typed_graphs import typed_data, typed_dataset

PATHS = (
    "author,writes,paper",
    "paper,cites,paper,rev_cites,paper",
    "author,writes,paper,in,venue,has,paper",
    "author,knows,author,writes,paper",
)
SPEC = PathSpec(target="paper", paths=PATHS, reversed_types=("paper__cites__paper",))
OPTIONS: dict[str, Any] = {
    "model": "sign",
    "paths": PATHS[:3],
    "memory_bytes": 100_000_000,
    "hidden": 16,
    "epochs": 3,
    "threads": 1,
    "engine": "threads",
    "matmul": "blas",
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> tuple[HeteroData, Dataset]:
    return typed_dataset(tmp_path_factory.mktemp("typed") / "graph")


def values_of(tables: HopTables, table: int) -> NDArray[np.float32]:
    count = tables.num_rows * tables.dim
    stored = np.fromfile(tables.table_path(table), "<f2" if tables.dtype == "float16" else "<f4", count)
    return stored.reshape(tables.num_rows, tables.dim).astype(np.float32)


def expected(data: HeteroData, path: str) -> NDArray[np.float64]:
    """Means over the neighbours of every step, by dense matrices."""
    words = path.split(",")
    x: NDArray[np.float64] = data[words[0]].x.double().numpy()
    for place in range(0, len(words) - 1, 2):
        source, relation, destination = words[place : place + 3]
        ends = (destination, relation.removeprefix("rev_"), source) if "rev_" in relation else tuple(words[place:][:3])
        rows, columns = data[ends].edge_index.numpy()
        if "rev_" in relation:
            rows, columns = columns, rows
        matrix = np.zeros((data[destination].num_nodes, data[source].num_nodes))
        np.add.at(matrix, (columns, rows), 1)
        x = matrix @ x / np.maximum(1, matrix.sum(1, keepdims=True))
    return x


def test_tables_are_products_of_the_matrices_of_a_path(graph: tuple[HeteroData, Dataset], tmp_path: Path) -> None:
    data, dataset = graph
    done = diskhop.propagate(dataset, SPEC, memory="60MB", scratch=tmp_path)
    tables = done.tables
    # At least the features of each path, once.
    assert done.steps[0]["bytes_read"] >= 3 * 90 * 6 * 2
    assert (tables.num_tables, tables.num_rows, tables.dim) == (5, 90, 6)
    np.testing.assert_array_equal(values_of(tables, 0), data["paper"].x.float().numpy())
    for number, path in enumerate(PATHS, 1):
        found, wanted = values_of(tables, number), expected(data, path)
        np.testing.assert_allclose(found[:, : wanted.shape[1]], wanted, rtol=1e-5, atol=1e-6)
        assert not found[:, wanted.shape[1] :].any()
    again = diskhop.propagate(dataset, SPEC, memory="60MB", scratch=tmp_path)
    assert again.tables.path == tables.path
    assert not again.steps


def test_budget_threads_and_parts_change_no_byte(
    graph: tuple[HeteroData, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, dataset = graph

    def sums(folder: str, memory: int, threads: int = 1) -> list[str]:
        tables = diskhop.propagate(dataset, SPEC, memory=memory, scratch=tmp_path / folder, threads=threads).tables
        return [file.checksum for file in tables.files]

    whole = sums("whole", 60_000_000)
    assert sums("threads", 60_000_000, threads=2) == whole
    with monkeypatch.context() as patch:
        # Room for two columns of all papers at a time.
        patch.setattr("diskhop.hops.path_tables.reading_features_bytes", lambda *_: 60_000_000 - _PART_BYTES - 6000)
        assert sums("columns", 60_000_000) == whole
        with pytest.raises(BudgetError, match="columns of a path"):
            sums("refused", 59_990_000)
    monkeypatch.setattr("diskhop.hops.path_tables._EDGES_PER_PART", 64)
    assert sums("parts", 60_000_000) == whole


def test_lists_longer_than_a_part_are_averaged_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, dataset = typed_dataset(tmp_path / "graph")
    monkeypatch.setattr("diskhop.hops.path_tables._EDGES_PER_PART", 2)
    tables = diskhop.propagate(dataset, SPEC, memory="60MB").tables
    for number, path in enumerate(PATHS, 1):
        wanted = expected(data, path)
        np.testing.assert_allclose(values_of(tables, number)[:, : wanted.shape[1]], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", ["sign", "hoga", "sgc"])
def test_models_train_on_paths(graph: tuple[HeteroData, Dataset], model: str, tmp_path: Path) -> None:
    _, dataset = graph
    options = {**OPTIONS, "model": model, "epochs": 30, "dropout": 0.0, "lr": 0.02, "scratch": str(tmp_path)}
    options |= {"hidden": 1} if model == "sgc" else {}
    result = train(dataset, **options).result
    assert result["kind"] == "typed-hop"
    losses = [epoch["loss"] for epoch in result["epochs"]]
    assert losses[-1] < losses[0]
    assert 0 <= result["test"]["accuracy"] <= 1


def test_a_run_reads_the_tables_that_were_built_and_resumes(
    graph: tuple[HeteroData, Dataset], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, dataset = graph
    words = ["propagate", str(dataset.path), "--path", PATHS[0], "--memory", "60MB", "--scratch", str(tmp_path / "s")]
    assert run_command([*words, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["target"], made["paths"], made["rows"]) == ("paper", [PATHS[0]], 90)
    assert run_command(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "propagated before" in shown
    assert f"--model sign --target paper --path {PATHS[0]}" in shown
    options = {**OPTIONS, "paths": PATHS[:1], "scratch": str(tmp_path / "s")}
    train(dataset, out=tmp_path / "whole", **options)
    assert made["path"] in (tmp_path / "whole" / "plan.json").read_text()
    assert len(list((tmp_path / "s").glob("propagated-*"))) == 1
    with pytest.raises(InterruptedRunError):
        train(dataset, out=tmp_path / "cut", callbacks=[_Interrupter(1)], **options)
    train(out=tmp_path / "cut", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_paths_show_what_is_two_steps_away(tmp_path: Path) -> None:
    data = typed_data()
    del data["author", "writes", "paper"].edge_attr
    generator = torch.Generator().manual_seed(5)
    data["author"].x = torch.randn(40, 3, generator=generator)
    papers = torch.arange(90)
    data["author", "writes", "paper"].edge_index = torch.stack([papers % 40, papers])
    # The class of a paper is a matter of its author alone.
    data["paper"].y = (data["author"].x[papers % 40, 0] > 0).long()
    dataset = diskhop.from_pyg(data, tmp_path / "graph")
    result = train(dataset, **{**OPTIONS, "paths": (PATHS[0],), "epochs": 80, "lr": 0.02, "dropout": 0.0}).result
    assert result["test"]["accuracy"] > 0.85


def test_all_paths_are_taken_by_default_and_planned(graph: tuple[HeteroData, Dataset], tmp_path: Path) -> None:
    _, dataset = graph
    options = {name: value for name, value in OPTIONS.items() if name != "paths"}
    options |= {"hops": 1, "scratch": str(tmp_path), "epochs": 1}
    trained = train(dataset, **options)
    config: Any = trained.config
    assert config.paths == ("author,writes,paper", "paper,cites,paper", "paper,rev_cites,paper")
    ranking = plan_run(dataset, **options)
    assert {option.name for option in ranking.options} == {"memory", "disk"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"paths": ("author,paper",)}, "--path author,paper must be node types and relations in turn"),
        (
            {"paths": ("author,likes,paper",)},
            "no edge type author,likes,paper; those that lead to 'paper' are author,w",
        ),
        ({"paths": ("author,writes,papr",)}, "--path author,writes,papr: unknown node type 'papr'"),
        ({"paths": ("paper,in,venue",)}, "--path paper,in,venue leads to 'venue', and the target is 'paper'"),
        ({"paths": ("venue,has,paper",)}, "begins at 'venue', whose nodes have no features: begin at one of author, p"),
        ({"target": "venue"}, "--target venue"),
        ({"paths": PATHS[:1] * 2}, "--path author,writes,paper is given more than once; give it once"),
        ({"operators": ("row",)}, "--operator is for hop tables of graphs of one type: remove it"),
        ({"direction": "both"}, "--direction is for hop tables of graphs of one type"),
        ({"paths": (), "hops": 6}, "has more than 64 paths of up to 6 steps to 'paper'"),
        ({"disk": "1KB"}, "4 tables take"),
    ],
    ids=str,
)
def test_bad_input_is_refused_in_one_line(
    graph: tuple[HeteroData, Dataset], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    options = {**OPTIONS, "scratch": str(tmp_path / "s"), **changes}
    options = {name: value for name, value in options.items() if value != ()}
    with pytest.raises(ConfigError) as refused:
        train(graph[1], out=tmp_path / "run", **options)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_options_of_types_are_for_graphs_with_types(
    graph: tuple[HeteroData, Dataset], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = small_graph(tmp_path / "one-type")
    assert run_command(["propagate", str(dataset.path), "--path", "paper,cites,paper"]) == 2
    assert "--path is for graphs with several types: remove it" in " ".join(capsys.readouterr().err.split())
    assert run_command(["propagate", str(graph[1].path), "--operator", "row"]) == 2
    assert "--operator is for graphs of one type" in " ".join(capsys.readouterr().err.split())
    words = shlex.split(f"propagate {graph[1].path} --path paper,cites,author --memory 60MB --scratch {tmp_path}")
    assert run_command(words) == 2
    assert "no edge type paper,cites,author" in " ".join(capsys.readouterr().err.split())
    assert run_command(["propagate", str(graph[1].path), "--path", "author,writes"]) == 2
    refused = " ".join(capsys.readouterr().err.split())
    assert "--path author,writes: unknown node type 'writes'; the known ones are" in refused
    assert "author, paper" in refused
