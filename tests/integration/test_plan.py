"""`diskhop plan`, and runs whose store the planner chose: what is told and kept; no value depends on it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from diskhop.budget import format_bytes
from diskhop.cli import run
from diskhop.dataset.dataset import Dataset
from diskhop.runs.plan import plan_run
from diskhop.runs.start import embed, train
from diskhop.stores.stores import STORES
from tests.pages import require_safe
from tests.runs import OPTIONS, assert_same_run, small_graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm")


def planned(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["plan", *map(str, arguments), "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_every_store_is_told_with_what_it_costs_or_why_it_cannot_run(
    graph: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    document = planned(capsys, graph.path, "--memory", "200MB", "--epochs", "20")
    options = {option["option"]: option for option in document["options"]}
    assert options.keys() == STORES.keys()
    assert document["epochs"] == 20
    assert all(option["reason"] for option in options.values())
    first = document["options"][0]
    assert first["option"] == "memory", "the table fits"
    assert first["predicted"]["epoch_seconds"] > 0
    assert not (graph.path / "derived").exists(), "nothing is left behind"


def test_a_run_that_measures_nothing_needs_no_room_for_it(graph: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    large = ("--eval-batch-size", "600", "--fanout", "2,2", "--batch-size", "10")
    with_eval = planned(capsys, graph.path, "--memory", "200MB", *large)["options"][0]
    without = planned(capsys, graph.path, "--memory", "200MB", "--no-eval", *large)["options"][0]
    assert sum(without["plan"]["reserved"].values()) < sum(with_eval["plan"]["reserved"].values())


def test_people_get_a_table_and_a_line_for_each_option(graph: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(graph.path), "--memory", "200MB"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("option")
    # Of equally fast stores the measured speeds decide.
    (chosen,) = (store for store in STORES if f"store {store}: " in told)
    for store in STORES.keys() - {chosen}:
        assert f"not {store}" in told
    assert f"diskhop train {graph.path}" in " ".join(told.split())


def test_the_command_that_is_suggested_can_be_pasted(
    graph: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["--memory", "200MB", "--epochs", "1", "--fanout", "2,2", "--hidden", "8", "--no-eval"]
    assert run(["plan", str(graph.path), *given]) == 0
    line = capsys.readouterr().out.rstrip().splitlines()[-1]
    assert line.split()[0] == "next"
    program, *words = shlex.split(line.removeprefix("next"))
    assert (program, words[0]) == ("diskhop", "train")
    assert set(given) <= set(words)
    assert run(words) == 0
    assert (tmp_path / "run" / "result.json").exists()


def test_a_page_has_what_the_table_has(graph: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "plan.html"
    given = ["plan", str(graph.path), "--memory", "200MB", "--epochs", "2"]
    assert run(["plan", str(graph.path), "--overwrite"]) == 2
    assert "--overwrite is of the page; add --html" in capsys.readouterr().err
    assert run([*given, "--html", str(tmp_path / "plan.txt")]) == 2
    assert "use --html" in capsys.readouterr().err
    assert run([*given, "--html", str(page), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["page"] == str(page)
    text = require_safe(page.read_text()).text
    assert "for 2 epochs" in text
    for option in document["options"]:
        assert option["option"] in text
        assert option["reason"] in text
    for name, num_bytes in document["options"][0]["plan"]["reserved"].items():
        assert not num_bytes or format_bytes(num_bytes) in text, name
    assert run([*given, "--html", str(page)]) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_one_option_is_explained(graph: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(graph.path), "--memory", "200MB", "--explain", "static"]) == 0
    told = capsys.readouterr().out
    for word in ("epoch seconds", "memory for", "hit rate", "plan"):
        assert word in told
    assert run(["plan", str(graph.path), "--explain", "magic"]) == 2
    assert "--explain: unknown strategy 'magic'; the known ones are" in capsys.readouterr().err


def test_hop_tables_are_planned_with_their_propagation(graph: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    options = planned(capsys, graph.path, "--model", "sign", "--memory", "200MB")["options"]
    assert {option["option"] for option in options} == {"memory", "disk"}
    assert all(option["predicted"]["preparation_seconds"] > 0 for option in options)


def test_partitions_of_embeddings_are_planned(graph: Dataset, tmp_path: Path) -> None:
    ranking = plan_run(graph, model="dot", dim=8, memory="200MB")
    assert ranking.options[0].name == "1 partition"
    # 32 MB of embeddings.
    large = small_graph(tmp_path / "large", num_nodes=20_000, dim=0)
    options: dict[str, Any] = {"dim": 400, "batch_size": 50, "negatives": 10, "evaluate": False}
    small = plan_run(large, model="dot", memory="28MB", **options)
    assert small.options[0].plan is not None
    assert small.options[0].plan.num_partitions > 1
    assert "too small" in {option.name: option.reason for option in small.options}["1 partition"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--memory", "1MB"], ("is too small", "the smallest that works is")),
        (["--model", "magic"], ("unknown model 'magic'",)),
        (["--memory", "much"], ("size 'much' is not a number",)),
        (["--model", "complex"], ("is for edges with relations",)),
    ],
)
def test_what_cannot_be_planned_is_one_line(
    graph: Dataset, arguments: list[str], words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", str(graph.path), *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    for word in words:
        assert word in line


def test_a_graph_without_features_has_nothing_to_choose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = small_graph(tmp_path / "plain", dim=0)
    assert run(["plan", str(plain.path)]) == 2
    assert "every store is alike" in capsys.readouterr().err
    assert train(plain, **{**OPTIONS, "epochs": 1}).result["plan"]["store"] == "direct"


def test_a_store_that_was_chosen_gives_the_bits_of_one_that_was_named(graph: Dataset, tmp_path: Path) -> None:
    chosen = train(graph, out=tmp_path / "auto", **OPTIONS)
    train(graph, out=tmp_path / "named", store="direct", **OPTIONS)
    assert_same_run(tmp_path / "auto", tmp_path / "named")
    assert chosen.config.store == "memory"  # type: ignore[attr-defined]
    assert 'store = "memory"' in (tmp_path / "auto" / "config.toml").read_text()


def test_a_run_keeps_what_was_predicted_beside_what_it_took(graph: Dataset, tmp_path: Path) -> None:
    plan = train(graph, out=tmp_path / "auto", **OPTIONS).result["plan"]
    assert plan["predicted_epoch_seconds"] == plan["predicted"]["epoch_seconds"] > 0
    assert {each["option"] for each in plan["rejected"]} == STORES.keys() - {"memory"}
    named = train(graph, store="static", **OPTIONS).result["plan"]
    assert named["predicted_epoch_seconds"] > 0
    hops = train(graph, model="sign", hops=1, epochs=1, memory="200MB", scratch=str(tmp_path)).result["plan"]
    assert hops["predicted_epoch_seconds"] > 0
    dots = embed(graph, out=tmp_path / "dots", model="dot", dim=8, epochs=1, memory="200MB").result["plan"]
    assert dots["predicted_epoch_seconds"] > 0


def test_epochs_that_are_packed_ahead_count_once_they_are_there(graph: Dataset, tmp_path: Path) -> None:
    options = {**OPTIONS, "scratch": str(tmp_path), "reuse": True}
    names = [option.name for option in plan_run(graph, **options).options]
    assert "packed ahead" in names
    train(graph, store="packed", **options)
    there = {option.name: option for option in plan_run(graph, **options).options}["packed ahead"]
    assert there.predicted is not None
    assert there.predicted.preparation_seconds == 0


def test_processes_share_memory_disk_and_batches(graph: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    words = graph.path, "--memory", "200MB", "--batch-size", "50", "--threads", "2"
    plans = [
        {option["option"]: option for option in planned(capsys, *words, *more)["options"] if "plan" in option}
        for more in ((), ("--processes", "2"))
    ]
    for store, (alone, both) in {name: [each[name] for each in plans] for name in ("memory", "static")}.items():
        assert both["plan"]["num_processes"] == 2
        shared = {"labels", "topology", "feature table" if store == "memory" else "cache"}
        assert set(both["plan"]["shared"]) == shared
        # Each process has half of the batches; together they read what one does, or a batch more.
        assert (
            alone["predicted"]["bytes_read"] <= both["predicted"]["bytes_read"] <= 2 * alone["predicted"]["bytes_read"]
        )
        assert both["predicted"]["compute_seconds"] > 0
        reserved = both["plan"]["reserved"]
        once = sum(reserved[name] for name in shared)
        assert once + 2 * (sum(reserved.values()) - once) <= 200_000_000
    of_one, of_each = (each["static"]["plan"]["reserved"]["mini-batches in flight"] for each in plans)
    assert of_each < 0.8 * of_one, "each has its part of the batches in flight, and those of its model"
    assert "num_processes" not in plans[0]["memory"]["plan"]
    assert run(["plan", str(graph.path), "--memory", "200MB", "--processes", "2"]) == 0
    told = capsys.readouterr().out
    assert "Memory of 2 processes:" in told
    assert "--processes 2" in told.partition("next")[2]


@pytest.mark.fast("sign")
@pytest.mark.parametrize("model", ["sign", "dot"])
def test_processes_share_the_work_of_hop_models_and_embeddings(graph: Dataset, model: str) -> None:
    alone, both = (
        plan_run(graph, model=model, batch_size=50, memory="200MB", processes=number, evaluate=False)
        for number in (1, 2)
    )
    best = both.best
    assert (best.num_processes, best.memory_bytes) == (2, 200_000_000)
    assert best.reserved_bytes <= 200_000_000
    assert any(reason.startswith("Memory of 2 processes:") for reason in best.reasons)
    assert best.to_dict()["num_processes"] == 2
    assert "num_processes" not in alone.best.to_dict()
    assert best.predicted is not None
    assert best.predicted.epoch_seconds > 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--processes", "0"], "processes must be at least 1, got 0; for example --processes 2"),
        (
            ["--processes", "3000", "--model", "dot"],
            "3000 processes need at least 6000 partitions, got 600 nodes; use fewer processes",
        ),
    ],
)
def test_processes_that_cannot_be_planned_are_refused(
    graph: Dataset, words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", str(graph.path), "--memory", "200MB", *words]) == 2
    assert capsys.readouterr().err == f"diskhop: {line}\n"
