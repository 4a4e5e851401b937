"""Adding a store takes one file and one line: a toy in the registry is planned, simulated, trained with and shown.

Its rows are checked by the contract in test_stores.py, which runs over the toy too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from diskhop.budget import Budget
from diskhop.cli import run
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import assumed_disk_model
from diskhop.errors import BudgetError, ConfigError
from diskhop.planning.planner import choose_plan, rank_options
from diskhop.planning.workload import Workload
from diskhop.plans import StoreShare
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.nodes.workload import training_workload
from diskhop.runs.start import train
from diskhop.stores.stores import STORES
from tests.runs import OPTIONS, assert_same_run, small_graph
from tests.toys.half_store import KIND, half_of

DISK = assumed_disk_model()


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STORES, KIND.name, KIND)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm")


def workload_of(graph: Dataset, **options: object) -> Workload:
    config, _, task = resolve_config(graph, {**OPTIONS, **options}, None)
    return training_workload(config, task.seeds, task.held, graph.num_nodes)  # type: ignore[arg-type]


def test_it_is_ranked_with_the_others(graph: Dataset) -> None:
    ranking = rank_options(graph, workload_of(graph), Budget(200_000_000), DISK)
    (option,) = (each for each in ranking.options if each.name == KIND.name)
    assert option.predicted is not None
    assert 0 < option.predicted.hit_rate < 1
    assert option.reason


def test_its_memory_is_reserved_by_name_and_the_smallest_budget_works(graph: Dataset) -> None:
    table = graph.feature_table()
    assert table is not None
    workload = workload_of(graph, store=KIND.name)
    with pytest.raises(BudgetError, match="half the table") as caught:
        choose_plan(graph, workload, Budget(1000), DISK)
    assert caught.value.smallest_bytes is not None
    plan = choose_plan(graph, workload, Budget(caught.value.smallest_bytes), DISK)
    assert plan.share.reserves == {"half the table": half_of(table) * table.row_bytes}
    assert plan.to_dict()["reserved"]["half the table"] == half_of(table) * table.row_bytes
    assert f"Half the table in memory: {half_of(table)} rows" in plan.reasons


def test_options_that_it_does_not_use_are_refused(graph: Dataset) -> None:
    with pytest.raises(ConfigError, match=r"--cache has no effect with --store half; remove it or use --store static"):
        choose_plan(graph, workload_of(graph, store=KIND.name, cache_bytes=1000), Budget(200_000_000), DISK)


def test_a_run_with_it_gives_the_bits_of_any_other(graph: Dataset, tmp_path: Path) -> None:
    result = train(graph, out=tmp_path / "half", store=KIND.name, **OPTIONS).result
    train(graph, out=tmp_path / "direct", store="direct", **OPTIONS)
    assert_same_run(tmp_path / "half", tmp_path / "direct")
    assert result["plan"]["store"] == KIND.name
    assert result["plan"]["predicted_epoch_seconds"] > 0
    assert result["epochs"][-1]["rows_hit"] > 0


def test_people_see_it(graph: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(graph.path), "--memory", "200MB", "--json"]) == 0
    assert KIND.name in {option["option"] for option in json.loads(capsys.readouterr().out)["options"]}
    assert run(["train", str(graph.path), "--store", "magic"]) == 2
    assert KIND.name in capsys.readouterr().err


@dataclass(frozen=True, slots=True, kw_only=True)
class _WindowShare(StoreShare):
    window_rows: int = 0


def test_numbers_of_a_store_alone_are_in_the_stored_plan(graph: Dataset) -> None:
    plan = choose_plan(graph, workload_of(graph, store=KIND.name), Budget(200_000_000), DISK)
    stored = replace(plan, share=_WindowShare(window_rows=7)).to_dict()
    assert stored["window_rows"] == 7
    assert {"cache_rows", "superbatch", "layout", "bytes_on_their_way"} <= stored.keys()
    assert not {"share", "reserves", "bytes_in_flight"} & stored.keys()
