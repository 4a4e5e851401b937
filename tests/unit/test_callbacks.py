"""Callbacks for trackers of experiments, early ends, and progress on terminals, in notebooks and in logs."""

from __future__ import annotations

import importlib
import io
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

import diskhop
from diskhop.errors import ConfigError
from diskhop.runs import start
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.choices import Resolved
from diskhop.runs.source import RunSource
from diskhop.ui.progress import MinuteLines, StageProgress, stage_progress

# The module: the package has the function under the same name.
api_pack = importlib.import_module("diskhop.api.pack")
RESULT = {"epochs": [{"epoch": 0}], "test": {"accuracy": 0.5, "protocol": {"sides": "both"}}}


@dataclass(frozen=True)
class Options:
    """Options of a run."""

    lr: float = 0.1
    fanout: tuple[int, ...] = (3,)


def progress_of(batch: int, loss: float | None = 2.0) -> BatchProgress:
    return BatchProgress(
        stage="train",
        epoch=1,
        num_epochs=2,
        batch=batch,
        num_batches=4,
        loss=loss,
        seconds_left=9.0,
        rate=5.0,
        unit="batches",
        stall_share=0.25,
        hit_rate=None,
    )


def run_through(callback: Callback) -> None:
    callback.configured(Options(), [])
    callback.batch_done(progress_of(3))
    callback.batch_done(progress_of(4, loss=None))
    assert callback.epoch_done({"epoch": 1, "loss": 1.5, "valid": 0.25, "stages": {}}) is False
    callback.finished(RESULT)


BATCH = {"batch/loss": 2.0, "batch/batches_per_second": 5.0, "batch/stall_share": 0.25}


@pytest.mark.parametrize("is_active", [False, True])
def test_mlflow_gets_options_and_numbers(monkeypatch: pytest.MonkeyPatch, is_active: bool) -> None:
    calls: list[tuple[Any, ...]] = []
    fake = SimpleNamespace(
        active_run=lambda: "run" if is_active else None,
        set_experiment=lambda name: calls.append(("experiment", name)),
        start_run=lambda run_name: calls.append(("start", run_name)),
        log_params=lambda params: calls.append(("params", params)),
        log_metrics=lambda values, step: calls.append((step, values)),
        end_run=lambda status: calls.append(("end", status)),
    )
    monkeypatch.setitem(__import__("sys").modules, "mlflow", fake)
    run_through(diskhop.MLflowCallback("graphs"))
    own = [("experiment", "graphs"), ("start", None)], [("end", "FINISHED")]
    first, last = ([], []) if is_active else own
    assert calls == [
        *first,
        ("params", {"lr": 0.1, "fanout": (3,)}),
        (7, BATCH),
        (1, {"epoch/loss": 1.5, "epoch/valid": 0.25}),
        (0, {"test/accuracy": 0.5}),
        *last,
    ]


def test_wandb_gets_options_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    run = SimpleNamespace(config={}, log=calls.append, finish=lambda exit_code: calls.append(exit_code))

    def init(**arguments: Any) -> Any:
        calls.append(arguments)
        return run

    monkeypatch.setitem(__import__("sys").modules, "wandb", SimpleNamespace(run=None, init=init))
    run_through(diskhop.WandbCallback(project="graphs"))
    assert run.config == {"lr": 0.1, "fanout": (3,)}
    assert calls == [
        {"project": "graphs"},
        {**BATCH, "batch/step": 7},
        {"epoch/loss": 1.5, "epoch/valid": 0.25, "epoch/step": 1},
        {"test/accuracy": 0.5, "test/step": 0},
        0,
    ]


@pytest.mark.parametrize(("error", "status"), [(ValueError(), "FAILED"), (KeyboardInterrupt(), "KILLED")])
def test_trackers_are_told_of_a_run_that_failed(
    error: BaseException, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[Any] = []
    mlflow = SimpleNamespace(
        active_run=lambda: None, start_run=lambda run_name: None, log_params=lambda params: None, end_run=ends.append
    )
    run = SimpleNamespace(config={}, finish=lambda exit_code: ends.append(exit_code))
    monkeypatch.setitem(__import__("sys").modules, "mlflow", mlflow)
    monkeypatch.setitem(__import__("sys").modules, "wandb", SimpleNamespace(run=None, init=lambda: run))
    callbacks = [diskhop.MLflowCallback(), diskhop.WandbCallback(), diskhop.TensorBoardCallback("run")]
    for callback in callbacks:
        callback.failed(error)
    assert ends == [], "they have nothing open before the run is configured"
    for callback in callbacks:
        callback.configured(Options(), [])
        assert callback.epoch_done({"epoch": 0}) is False, "a record without numbers"
        callback.failed(error)
        callback.failed(error)
    assert ends == [status, 1]


class Broken(Callback):
    """Fails in some of its methods."""

    def __init__(self, *methods: str) -> None:
        self.errors: list[BaseException] = []
        self._methods = methods

    def configured(self, config: Any, choices: Any) -> None:
        if "configured" in self._methods:
            raise ValueError("configured")

    def finished(self, result: Any) -> None:
        if "finished" in self._methods:
            raise ValueError("finished")

    def failed(self, error: BaseException) -> None:
        self.errors.append(error)
        if "failed" in self._methods:
            raise OSError("gone")


def fails(*_: Any) -> Any:
    raise ConfigError("the run")


@pytest.mark.parametrize(
    ("run", "methods", "message"),
    [
        (fails, ("failed",), "the run"),
        (lambda *_: SimpleNamespace(result=RESULT), ("finished",), "finished"),
        (fails, ("configured",), "configured"),
    ],
)
def test_every_callback_hears_of_the_error_that_the_caller_gets(
    run: Any, methods: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = Resolved(Options(), [], None)
    dataset = SimpleNamespace(path="graph")
    monkeypatch.setattr(start, "find_run_source", lambda *_args, **_options: RunSource(dataset, {}))  # type: ignore[arg-type]
    monkeypatch.setattr(start, "_complete", lambda *_: (resolved, None))
    monkeypatch.setattr(start, "require_same_dataset", lambda *_: None)
    monkeypatch.setattr(start, "kind_of", lambda _: SimpleNamespace(run=run, name="node"))
    callbacks = [Broken(*methods), Broken()]
    with pytest.raises(ValueError, match=message) as told:
        start.train("graph", callbacks=callbacks)
    assert [each.errors for each in callbacks] == [[told.value], [told.value]]
    if "failed" in methods:
        assert told.value.__notes__ == ["Broken.failed: OSError: gone"]


class Told(Callback):
    """Keeps what it was told at the end."""

    def __init__(self) -> None:
        self.ends: list[Any] = []

    def finished(self, result: Any) -> None:
        self.ends.append(result)

    def failed(self, error: BaseException) -> None:
        self.ends.append(error)


def test_packing_ends_for_its_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [{"stage": "pack", "seconds": 1.0}]
    monkeypatch.setattr(api_pack, "pack_epochs", lambda *_args, **_options: SimpleNamespace(steps=steps))
    done, stopped = Told(), Told()
    diskhop.pack("graph", callbacks=[done])
    assert done.ends == [{"epochs": [], "preparation": steps}]
    monkeypatch.setattr(api_pack, "pack_epochs", lambda *_args, **_options: fails())
    with pytest.raises(ConfigError) as told:
        diskhop.pack("graph", callbacks=[stopped])
    assert stopped.ends == [told.value]


@pytest.mark.parametrize(("name", "extra"), [("MLflowCallback", "mlflow"), ("WandbCallback", "wandb")])
def test_a_missing_package_is_named_with_its_extra(name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, extra, None)
    with pytest.raises(ConfigError, match=rf"pip install 'diskhop\[{extra}\]'"):
        getattr(diskhop, name)()


def test_a_function_ends_training() -> None:
    stop = diskhop.StopWhen(lambda record: record["valid"] > 0.5)
    assert [stop.epoch_done({"valid": valid}) for valid in (0.4, 0.6)] == [False, True]


def console_of(*, is_terminal: bool, **options: Any) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=is_terminal, width=100, **options), out


def test_a_log_gets_a_line_a_minute() -> None:
    console, out = console_of(is_terminal=False)
    now = [0.0]
    stages = StageProgress(Progress(console=console, disable=True), clock=lambda: now[0])
    for now[0], done in ((0.0, 0), (59.0, 10), (60.0, 25), (61.0, 30), (119.0, 40), (120.0, 50)):
        stages("features", done, 100)
    assert out.getvalue().splitlines() == [
        "features: 25% after 60 s, 180 s left",
        "features: 50% after 120 s, 120 s left",
    ]


def test_a_terminal_has_bars_instead_of_lines() -> None:
    console, out = console_of(is_terminal=True)
    now = [0.0]
    lines = MinuteLines(console, clock=lambda: now[0])
    for now[0] in (0.0, 100.0):
        lines.show(lambda: "line")
    assert out.getvalue() == ""


@pytest.mark.parametrize("no_color", [False, True])
def test_colours_are_left_out_where_asked(no_color: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    console, out = console_of(is_terminal=True)
    with stage_progress(console) as progress:
        progress("features", 5, 10)
    assert "features" in out.getvalue()
    assert ("\x1b[38;" in out.getvalue() or "\x1b[3" in out.getvalue()) is not no_color
