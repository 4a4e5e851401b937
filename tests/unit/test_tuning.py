"""Tuning: a grid around a run's options, successive halving, and searches that are interrupted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diskhop.cli import run
from diskhop.config.train import TrainConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError, DestinationError
from diskhop.runs.callbacks import Callback
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.start import run_config, train
from diskhop.runs.tuning import Trial, choose_rungs, halve, make_grid, rank_trials
from tests.graphs import make_dataset
from tests.runs import OPTIONS, small_graph

ALWAYS = 1e9
# Two trials: the run's own dropout, and another.
FIXED: dict[str, Any] = {**OPTIONS, "lr": 0.01, "layers": 2}


class Attempts:
    """Trials that take a second each, whose validations are those of a table: by number of the change, then epochs."""

    def __init__(self, values: list[Any]) -> None:
        self.grid: list[dict[str, Any]] = [{"lr": float(number)} for number in range(len(values))]
        self.values = values
        self.made: list[tuple[int, int]] = []

    def __call__(self, changes: dict[str, Any], epochs: int) -> Trial:
        number = int(changes["lr"])
        self.made.append((number, epochs))
        value = self.values[number]
        return Trial(changes, epochs, value[epochs] if isinstance(value, dict) else value, 1.0)

    def best(self, rungs: list[int], most_seconds: float = ALWAYS, metric: str = "accuracy") -> int:
        return int(halve(self.grid, rungs, metric, self, most_seconds)["lr"])


def test_the_best_third_of_a_rung_trains_for_longer() -> None:
    attempts = Attempts([0.1, 0.9, 0.3, 0.8, 0.2, {2: 0.7, 6: 0.95}])
    assert attempts.best([2, 6]) == 1
    assert attempts.made == [*((number, 2) for number in range(6)), (1, 6), (3, 6)]
    slow_starter = Attempts([0.5, {2: 0.6, 6: 0.9}, {2: 0.7, 6: 0.8}, 0.1, 0.1, 0.1])
    assert slow_starter.best([2, 6]) == 1


def test_of_errors_the_lowest_is_best() -> None:
    assert Attempts([0.5, 0.2, 0.9]).best([4], metric="rmse") == 1
    assert rank_trials([0.5, None, 0.2, float("nan"), 0.2], "mae") == [2, 4, 0]
    assert rank_trials([0.5, None, 0.2, float("nan"), 0.5], "auc") == [0, 4, 2]


@pytest.mark.parametrize(("most_seconds", "made", "best"), [(0, 1, 0), (2.5, 3, 2), (6, 6, 4), (7, 7, 4), (99, 8, 3)])
def test_no_trial_begins_after_the_time_is_over(most_seconds: float, made: int, best: int) -> None:
    attempts = Attempts([0.1, 0.2, 0.3, {2: 0.7, 6: 0.9}, 0.8, 0.5])
    assert attempts.best([2, 6], most_seconds) == best
    assert len(attempts.made) == made


def test_a_trial_that_failed_is_never_the_best() -> None:
    assert Attempts([0.1, None, None]).best([3]) == 0
    assert Attempts([{2: 0.1, 6: None}, {2: 0.2, 6: None}, *[None] * 4]).best([2, 6]) == 1


@pytest.mark.parametrize(
    ("epochs", "num_trials", "rungs"),
    [(200, 18, [23, 67, 200]), (5, 18, [1, 2, 5]), (1, 18, [1, 1, 1]), (90, 12, [30, 90]), (90, 2, [90])],
)
def test_rungs_end_with_all_epochs(epochs: int, num_trials: int, rungs: list[int]) -> None:
    assert choose_rungs(epochs, num_trials) == rungs


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("grid") / "graph", num_nodes=90, num_edges=300, dim=16)


def test_the_grid_begins_with_no_change_and_keeps_what_is_given(dataset: Dataset) -> None:
    config = resolve_config(dataset, {}).config
    grid = make_grid(config, ())
    assert grid[0] == {}
    assert grid[1:3] == [{"lr": 0.009}, {"lr": 0.001}]
    assert {"layers": 3, "fanout": (10,) * 3, "eval_fanout": (-1,) * 3} in grid
    assert {"lr": 0.009, "dropout": 0.2, "hidden": 256} in grid
    assert len(grid) == len({json.dumps(changes) for changes in grid}) == 18
    for changes in grid:
        assert replace(config, **changes) is not None, "each is a valid configuration"
    assert make_grid(config, {"lr", "hidden", "fanout"}) == [{}, {"dropout": 0.2}]
    # The other run's architecture.
    assert all(changes.keys() <= {"lr", "dropout"} for changes in make_grid(replace(config, warm_start="run"), ()))
    uneven = resolve_config(dataset, {"fanout": (10, 5)}).config
    assert not any("layers" in changes for changes in make_grid(uneven, ()))


def test_the_grid_of_hop_tables_has_other_numbers_of_hops(dataset: Dataset) -> None:
    grid = make_grid(resolve_config(dataset, {"model": "sgc", "hops": 1}).config, {"lr"})
    assert grid == [{}, {"weight_decay": 5e-4}, {"hops": 2}, {"weight_decay": 5e-4, "hops": 2}]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("tuning") / "graph")


class Lines(Callback):
    """Keeps the lines about trials, and ends the search by Ctrl-C after some of them."""

    def __init__(self, most: int = 100) -> None:
        self.trials: list[str] = []
        self.most = most

    def announced(self, text: str) -> None:
        """See Callback."""
        self.trials += [text] if "validation" in text else []
        if len(self.trials) == self.most:
            raise KeyboardInterrupt


def test_a_run_takes_the_best_options_and_says_what_was_tried(graph: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    trained = train(graph, out=out, tune=ALWAYS, **FIXED)
    found = trained.result["tuning"]
    assert [trial["changes"] for trial in found["trials"]] == [{}, {"dropout": 0.2}]
    valid = [trial["valid"] for trial in found["trials"]]
    assert found["chosen"] == found["trials"][valid.index(max(valid))]["changes"]
    assert trained.result["best_valid"] == max(valid), "the run is the trial again, with all epochs"
    assert trained.config.dropout == found["chosen"].get("dropout", 0.5)
    assert json.loads((out / "result.json").read_bytes())["tuning"] == found
    assert train(graph, **{**FIXED, **found["chosen"]}).result["best_valid"] == max(valid)


def test_an_interrupted_search_continues(graph: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt) as caught:
        train(graph, out=out, tune=ALWAYS, callbacks=[Lines(1)], **FIXED)
    assert "the same command continues" in caught.value.__notes__[0]
    assert [path.name for path in out.iterdir()] == ["tuning.json"]
    with pytest.raises(ConfigError, match=r"has the trials of a search; add --tune 10 to continue it, or name another"):
        train(graph, out=out, **FIXED)
    with pytest.raises(ConfigError, match=r"tuning.json: has trials .* of other options; name another --out"):
        train(graph, out=out, tune=ALWAYS, **{**FIXED, "epochs": 2})
    lines = Lines()
    found = train(graph, out=out, tune=ALWAYS, callbacks=[lines], **FIXED).result["tuning"]
    assert len(lines.trials) == 1, "the first trial is not trained again"
    assert [trial["changes"] for trial in found["trials"]] == [{}, {"dropout": 0.2}]
    with pytest.raises(DestinationError, match="already exists"):
        train(graph, out=out, tune=ALWAYS, **FIXED)


def test_a_resumed_run_keeps_what_was_tried(graph: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = train(graph, out=out, tune=1e-9, **FIXED).result
    assert len(first["tuning"]["trials"]) == 1
    (out / "result.json").unlink()
    assert train(out=out, resume=True).result["tuning"] == first["tuning"]


def test_a_trial_beyond_the_memory_has_failed_and_the_run_itself_must_not(
    graph: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(dataset: Dataset, config: TrainConfig, *arguments: Any, **others: Any) -> Any:
        if config.dropout == dropout:
            raise BudgetError("too small")
        return run_config(dataset, config, *arguments, **others)

    monkeypatch.setattr("diskhop.runs.start.run_config", refuse)
    dropout = 0.2
    found = train(graph, tune=ALWAYS, **FIXED).result["tuning"]
    assert [trial["valid"] is None for trial in found["trials"]] == [False, True]
    assert found["chosen"] == {}
    dropout = 0.5
    with pytest.raises(BudgetError, match="too small"):
        train(graph, tune=ALWAYS, **FIXED)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tune": 0}, r"--tune must be a number of minutes above 0, got 0; for example --tune 10"),
    ({"tune": 1, "evaluate": False}, r"--tune chooses by validation: remove --no-eval"),
    ({"tune": 1, "lr": 0.1, "dropout": 0.1, "layers": 2, "hidden": 8}, r"nothing to change, .* given: remove --lr"),
    ({"tune": 1, "resume": True, "out": "run"}, r"--tune is for a new run: remove --tune to resume"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_tuning_cannot_do_is_refused(graph: Dataset, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train(graph, **options)


def test_the_command_line_prints_trials_and_the_command_that_won(
    graph: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(graph.path)
    words = ["--lr", "0.01", "--layers", "2", "--hidden", "16", "--epochs", "3", "--memory", "200MB"]
    assert run(["train", path, "--tune", "1000", *words]) == 0
    printed = capsys.readouterr()
    assert "tune: 3 epochs, dropout 0.2: validation" in printed.err
    command = next(line for line in printed.out.splitlines() if line.startswith("without --tune"))
    chosen = " --dropout 0.2" if "* dropout" in " ".join(printed.out.split()) else ""
    assert command.split("  ", 1)[1].strip() == (f"diskhop train {path} {' '.join(words)}{chosen}")
    assert run(["train", path, "--tune", "0.0000001", "--json", *words]) == 0
    found = json.loads(capsys.readouterr().out)["tuning"]
    assert found["chosen"] == {}
    assert found["command"].startswith("diskhop train")
    assert run(["train", path, "--tune", "1", "--processes", "2"]) == 2
    assert "--tune runs in one process: remove --processes" in capsys.readouterr().err
