"""Whatever ends a run before its time, it resumes to the bytes of one that was never interrupted."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tomllib
from dataclasses import MISSING
from pathlib import Path

import pytest
import tomli_w

from diskhop._native import CrashError
from diskhop.cli import run
from diskhop.config.options import option_fields
from diskhop.config.sampled import SampledConfig
from diskhop.config.train import TrainConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, TrainingError
from diskhop.io.faults import CrashInjector, Lost
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.start import run_config, train
from tests.runs import (
    OPTIONS,
    StageCounter,
    assert_same_run,
    folder_bytes,
    import_arrays,
    losses,
    random_arrays,
    small_graph,
)

LOST: tuple[Lost, ...] = ("names", "data")
RUN = Path("some/folders/run")
INTERRUPTED_COMMAND = """
import os, signal, sys
from diskhop import cli
from diskhop.ui import terminal

# A process that a shell started in the background ignores SIGINT, and one of nohup SIGHUP, and so would its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
number = int(sys.argv.pop())

class Interrupter(terminal.TerminalCallback):
    def batch_done(self, progress):
        super().batch_done(progress)
        if (progress.stage, progress.epoch, progress.batch) == ("train", 2, 3):
            os.kill(os.getpid(), number)

terminal.TerminalCallback = Interrupter
cli.main()
"""

# Standard output and standard error become a pipe without a reader, with something left to write.
HANG_UP = (
    "sys.stdout.write('unread'); unread, written = os.pipe(); "
    "os.dup2(written, 1); os.dup2(written, 2); os.close(unread)"
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm")


KILLED_RUN = """
import os, signal, sys
from diskhop.runs.callbacks import Callback
from diskhop.runs.start import train

class Killer(Callback):
    def batch_done(self, progress):
        if (progress.stage, progress.epoch, progress.batch) == ("train", 2, 3):
            os.kill(os.getpid(), signal.SIGKILL)

train(config=sys.argv[1], out=sys.argv[2], callbacks=[Killer()])
"""


def test_a_killed_run_resumes_to_the_bytes_of_one_never_interrupted(dataset: Dataset, tmp_path: Path) -> None:
    train(dataset, out=tmp_path / "whole", **OPTIONS)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_RUN, tmp_path / "whole/config.toml", tmp_path / "killed"],
        check=False,
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL
    assert len(losses(tmp_path / "killed")) == 2
    assert not (tmp_path / "killed/result.json").exists()

    counter = StageCounter()
    train(out=tmp_path / "killed", resume=True, callbacks=[counter])
    assert counter.num_batches["train"] == 2 * 6
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.fast("15")
@pytest.mark.parametrize(
    ("number", "what"),
    [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended by SIGTERM"), (signal.SIGHUP, "ended by SIGHUP")],
)
def test_an_interrupted_run_ends_with_one_line_and_resumes_to_the_same_bytes(
    dataset: Dataset, tmp_path: Path, number: signal.Signals, what: str
) -> None:
    train(dataset, out=tmp_path / "whole", **OPTIONS)
    out = tmp_path / "stopped"
    arguments = ["train", "--config", str(tmp_path / "whole/config.toml"), "--out", str(out)]
    command = [sys.executable, "-c", INTERRUPTED_COMMAND, *arguments, str(int(number))]
    stopped = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert stopped.returncode == 128 + number
    lines = stopped.stderr.splitlines()
    resume = f"diskhop train --resume --out {out}"
    assert [line for line in lines if line.startswith("diskhop:")] == lines[-1:]
    assert lines[-1] == f"diskhop: {what}; resume with: {resume}"
    assert "Traceback" not in stopped.stdout + stopped.stderr
    assert len(losses(out)) == 2
    assert not (out / "result.json").exists()

    assert run(["train", "--resume", "--out", str(out)]) == 0
    assert_same_run(tmp_path / "whole", out)


def test_a_hangup_has_its_exit_code_without_a_reader_of_the_last_line(dataset: Dataset, tmp_path: Path) -> None:
    train(dataset, out=tmp_path / "whole", **OPTIONS)
    out = tmp_path / "stopped"
    arguments = ["train", "--config", str(tmp_path / "whole/config.toml"), "--out", str(out)]
    hung_up = INTERRUPTED_COMMAND.replace("            os.kill(", f"            {HANG_UP}\n            os.kill(")
    command = [sys.executable, "-c", hung_up, *arguments, str(int(signal.SIGHUP))]
    stopped = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert stopped.returncode == 128 + signal.SIGHUP
    assert run(["train", "--resume", "--out", str(out)]) == 0
    assert_same_run(tmp_path / "whole", out)


def crash_at(root: Path, nth: int, dataset: Dataset, config: TrainConfig, survivors: dict[Lost, Path]) -> int:
    """Train into a new folder below root and crash before change nth (0: never); returns the number of changes."""
    root.mkdir()
    with CrashInjector(root, nth) as injector:
        with pytest.raises(CrashError) if nth else contextlib.nullcontext():
            run_config(dataset, config, root / RUN, injector=injector)
        for lost, target in survivors.items():
            target.mkdir()
            injector.write_survivors(target, lost)
        return injector.num_changes


@pytest.mark.parametrize("each_loses_both", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_wherever_a_crash_comes_resuming_from_what_is_left_ends_with_the_same_bytes(
    dataset: Dataset, tmp_path: Path, each_loses_both: bool
) -> None:
    """Every third crash loses names and data in turn, or every crash both."""
    # A run that resumes reads from config.toml which store was chosen; here both are given the same.
    config = resolve_config(dataset, {**OPTIONS, "epochs": 2, "max_batches": 1, "store": "memory"}).config
    whole = tmp_path / "whole" / RUN
    survivors: dict[Lost, Path] = {lost: tmp_path / f"after-{lost}" for lost in LOST}
    num_changes = crash_at(tmp_path / "whole", 0, dataset, config, survivors)
    # Three folders, config, two commits, metrics, model, result: files are a write, two fsyncs and a rename each.
    assert num_changes >= 3 + 4 * 6
    for folder in survivors.values():
        assert folder_bytes(folder / RUN) == folder_bytes(whole), "a finished run survives whole"

    for nth in range(1, num_changes + 1, 1 if each_loses_both else 3):
        survivors = {lost: tmp_path / f"{nth}-{lost}" for lost in (LOST if each_loses_both else (LOST[nth % 2],))}
        crash_at(tmp_path / f"{nth}", nth, dataset, config, survivors)
        for folder in survivors.values():
            out = folder / RUN
            run_config(dataset, config, out, resume=(out / "config.toml").exists())
            assert_same_run(whole, out)
            assert (out / "config.toml").read_bytes() == (whole / "config.toml").read_bytes()
            assert {path.name for path in out.iterdir() if path.suffix != ".partial"} == {
                path.name for path in whole.iterdir()
            }


@pytest.mark.fast(2)
@pytest.mark.parametrize("kept", ["", "first line", "first line and a half", "zeros", "nothing"])
def test_a_run_resumes_whatever_is_left_of_its_metrics(dataset: Dataset, tmp_path: Path, kept: str) -> None:
    out = tmp_path / "run"
    train(dataset, out=out, **OPTIONS)
    metrics = out / "metrics.jsonl"
    whole = metrics.read_bytes()
    first = whole.splitlines(keepends=True)[0]
    left = {"": b"", "first line": first, "first line and a half": first + first[:9], "zeros": bytes(len(whole))}
    if kept == "nothing":
        metrics.unlink()
    else:
        metrics.write_bytes(left[kept])
    train(dataset, out=out, resume=True)
    assert metrics.read_bytes() == whole


def test_a_finished_run_resumes_to_itself(dataset: Dataset, tmp_path: Path) -> None:
    first = train(dataset, out=tmp_path / "run", **OPTIONS)
    again = train(dataset, out=tmp_path / "run", resume=True)
    assert again.result["test"] == first.result["test"]
    assert again.result["epochs"] == json.loads(json.dumps(first.result["epochs"]))


def test_resuming_refuses_what_is_not_the_same_run(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(dataset, out=out, **OPTIONS)
    with pytest.raises(ConfigError, match=r"--lr is .* in the run, not .*; remove --lr and --epochs"):
        train(dataset, out=out, resume=True, epochs=9, lr=0.5)
    other = import_arrays(tmp_path, **random_arrays())
    with pytest.raises(ConfigError, match=rf"is for the dataset with hash {dataset.hash}, .*{other.hash}"):
        train(other, out=out, resume=True)
    with pytest.raises(ConfigError, match="there is no run to resume"):
        train(dataset, out=tmp_path / "nothing", resume=True)
    with pytest.raises(ConfigError, match="--resume needs the folder of the run: add --out"):
        train(dataset, resume=True)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_resuming_names_the_line_that_config_toml_lacks(dataset: Dataset, tmp_path: Path, every: int) -> None:
    out = tmp_path / "run"
    train(dataset, out=out, **OPTIONS)
    config = out / "config.toml"
    before = folder_bytes(out)
    options = tomllib.loads(config.read_text())
    later = {name for name, each in option_fields(SampledConfig).items() if each.before is not MISSING}
    assert later == {"self_term", "checkpoint_every", "keep", "total_memory_bytes"}
    for name in sorted(options.keys() - {"dataset", "dataset_hash"} - later)[::every]:
        config.write_text(tomli_w.dumps({key: value for key, value in options.items() if key != name}))
        with pytest.raises(ConfigError, match=rf"config\.toml: .*every option .* but {name} is missing; put"):
            train(dataset, out=out, resume=True)
        config.write_bytes(before["config.toml"])
        assert folder_bytes(out) == before


def test_a_damaged_checkpoint_is_told_in_one_line(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(dataset, out=out, **OPTIONS)
    checkpoint = out / "checkpoint.safetensors"
    content = bytearray(checkpoint.read_bytes())
    content[-5] ^= 1
    checkpoint.write_bytes(content)
    with pytest.raises(TrainingError, match=r"checkpoint\.safetensors: is damaged"):
        train(dataset, out=out, resume=True)
