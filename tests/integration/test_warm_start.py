"""A run that starts from another's model: what it starts with, what must be the same, and what resuming needs."""

from __future__ import annotations

import contextlib
import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from diskhop._native import CrashError
from diskhop.cli import run as run_command
from diskhop.config.train import TrainConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, SchemaError
from diskhop.io.faults import CrashInjector, Lost
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.checkpoint import load_state, load_tensors
from diskhop.runs.choices import Choice
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.start import embed, run_config, train
from tests.embedding import OPTIONS as EMBED_OPTIONS
from tests.embedding import small_triples
from tests.runs import OPTIONS, assert_same_run, folder_bytes, import_arrays, losses, random_arrays, small_graph

# What a newer run is told: none of it belongs to the architecture.
NEWER: dict[str, Any] = {name: value for name, value in OPTIONS.items() if name not in ("hidden", "fanout")}
NEWER |= {"epochs": 2, "seed": 5}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "yesterday")


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "today", num_nodes=700, num_edges=5000, seed=2)


@pytest.fixture(scope="module")
def run(graph: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "yesterday"
    train(graph, out=out, **OPTIONS)
    return out


class Stop(Callback):
    """Interrupts a run in an epoch's first batch, and keeps what it announced and chose."""

    def __init__(self, epoch: int | None = None) -> None:
        self._epoch = epoch
        self.announcements: list[str] = []
        self.choices: list[Choice] = []

    def configured(self, config: Any, choices: Any) -> None:
        self.choices = list(choices)

    def announced(self, text: str) -> None:
        self.announcements.append(text)

    def batch_done(self, progress: BatchProgress) -> None:
        if (progress.stage, progress.epoch) == ("train", self._epoch):
            raise KeyboardInterrupt


def interrupted(dataset: Dataset, out: Path, epoch: int, **options: Any) -> Stop:
    stop = Stop(epoch)
    with pytest.raises(KeyboardInterrupt):
        train(dataset, out=out, callbacks=[stop], **options)
    return stop


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("is_kept", [False, True])
def test_training_starts_with_the_other_runs_model(run: Path, newer: Dataset, tmp_path: Path, is_kept: bool) -> None:
    stop = interrupted(newer, tmp_path / "out", 0, warm_start=str(run), keep_optimizer=is_kept, **NEWER)
    state = load_state(tmp_path / "out" / "checkpoint.safetensors")
    assert state.epoch == 0
    assert_equal(state.model, load_tensors(run / "model.safetensors")[0])
    assert_equal(state.optimizer, load_state(run / "checkpoint.safetensors").optimizer if is_kept else {})
    words = "kept" if is_kept else "fresh"
    assert stop.announcements[-1] == f"Warm start: parameters of {run}, {words} optimiser state"


@pytest.mark.fast(2)
@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_resumed_run_has_the_same_bits_without_the_other_run(
    run: Path, newer: Dataset, tmp_path: Path, epoch: int, is_kept: bool
) -> None:
    old = tmp_path / "old"
    shutil.copytree(run, old)
    options = {**NEWER, "warm_start": str(old), "keep_optimizer": is_kept}
    whole = train(newer, out=tmp_path / "whole", **options)
    interrupted(newer, tmp_path / "stopped", epoch, **options)
    shutil.rmtree(old)
    resumed = train(out=tmp_path / "stopped", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")
    dataset_hash = tomllib.loads((run / "config.toml").read_text())["dataset_hash"]
    for trained in (whole, resumed):
        started = {"run": str(old), "dataset_hash": dataset_hash, "optimizer": "kept" if is_kept else "fresh"}
        assert trained.result["warm_start"] == started
    assert json.loads((tmp_path / "stopped" / "result.json").read_bytes())["warm_start"]["run"] == str(old)


def test_a_warm_start_changes_training_and_config_toml_repeats_it(run: Path, newer: Dataset, tmp_path: Path) -> None:
    train(newer, out=tmp_path / "warm", warm_start=str(run), **NEWER)
    train(newer, out=tmp_path / "kept", warm_start=str(run), keep_optimizer=True, **NEWER)
    cold = train(newer, out=tmp_path / "cold", **{**OPTIONS, **NEWER})
    assert "warm_start" not in cold.result
    first = [float(losses(tmp_path / name)[0]) for name in ("warm", "kept", "cold")]
    assert len(set(first)) == 3
    assert max(first[:2]) < first[2]
    train(config=tmp_path / "warm/config.toml", out=tmp_path / "again")
    assert_same_run(tmp_path / "warm", tmp_path / "again")


ARCHITECTURES: dict[str, dict[str, Any]] = {
    "sage": {"layers": 3, "hidden": 24, "norm": "batch", "residual": True},
    "gcn": {"layers": 1, "hidden": 8, "normalize_input": True},
    "gat": {"layers": 2, "hidden": 12, "heads": 4, "norm": "none"},
    "sgc": {"hops": 2, "operators": ("row",)},
    "sign": {"layers": 1, "hidden": 20, "hops": 2, "direction": "both"},
    "hoga": {"layers": 2, "hidden": 12, "heads": 3, "hops": 2, "operators": ("sgc",), "norm": "batch"},
}


@pytest.mark.fast("sage", "sign")
@pytest.mark.parametrize("model", ARCHITECTURES)
def test_the_architecture_is_the_other_runs(model: str, graph: Dataset, newer: Dataset, tmp_path: Path) -> None:
    short = {**NEWER, "epochs": 1}
    train(graph, out=tmp_path / "old", model=model, **ARCHITECTURES[model], **short)
    stop = Stop()
    trained = train(newer, out=tmp_path / "new", warm_start=str(tmp_path / "old"), callbacks=[stop], **short)
    for name, value in {"model": model, **ARCHITECTURES[model]}.items():
        assert getattr(trained.config, name) == value
    reasons = {choice.option: choice.why for choice in stop.choices}
    assert reasons["model"] == "as in the run of --warm-start, old"
    assert (model in ("gcn", "sgc", "sign")) or reasons["hidden"] == reasons["model"]
    # From the path in another spelling, and with options that agree.
    train(newer, warm_start=f"{tmp_path}/./old", model=model, **ARCHITECTURES[model], **short)


def test_features_that_are_made_are_the_other_runs(tmp_path: Path) -> None:
    arrays = random_arrays()
    del arrays["x"]
    plain = import_arrays(tmp_path, **arrays)
    short = {**NEWER, "epochs": 1}
    train(plain, out=tmp_path / "old", features="random", **short)
    trained = train(plain, warm_start=str(tmp_path / "old"), **short)
    assert trained.result["warm_start"]["run"] == str(tmp_path / "old")
    with pytest.raises(SchemaError, match=r"has seed 5, this run 6: --warm-start needs the same; .* use --seed 5"):
        train(plain, warm_start=str(tmp_path / "old"), **{**short, "seed": 6})
    with pytest.raises(SchemaError, match=r"has features random, this run degree: .* or use --features random"):
        train(plain, warm_start=str(tmp_path / "old"), features="degree", **short)


def test_each_mismatch_is_a_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = small_graph(tmp_path / "other", dim=17, num_classes=5)
    out = tmp_path / "out"
    given = ["--hidden", "32", "--layers", "3", "--residual", "--norm", "none", "--memory", "100MB", "--epochs", "1"]
    arguments = ["train", str(other.path), "--warm-start", str(run), "--out", str(out), *given]
    assert run_command(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    found = [line.removeprefix("diskhop: ") for line in lines if line.startswith("diskhop: ")]
    ways = ["--layers 2", "--hidden 16", "--norm layer", "--no-residual"]
    for line, way in zip(found[:4], ways, strict=True):
        assert line.startswith(f"{run}: has ")
        assert line.endswith(f"--warm-start needs the same; remove it, or use {way}")
    assert [line.split(", but")[0] for line in found[4:]] == [
        f"{other.path}: 17 feature columns", f"{other.path}: 5 classes"
    ]  # fmt: skip
    assert not out.exists()
    assert not (other.path / "derived").exists()


@pytest.mark.parametrize(
    ("options", "way"),
    [
        ({"model": "gcn"}, "has model sage, this run gcn: .* use --model sage"),
        ({"model": "sign"}, "has model sage, this run sign: .* use --model sage"),
        ({"normalize_input": True}, "has normalize_input False, this run True: .* use --no-normalize-input"),
        ({"keep_optimizer": True, "warm_start": ""}, "--keep-optimizer needs another run's state: add --warm-start"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_named(
    run: Path, newer: Dataset, tmp_path: Path, options: dict[str, Any], way: str
) -> None:
    with pytest.raises(ConfigError, match=way):
        train(newer, out=tmp_path / "out", **{**NEWER, "warm_start": str(run), **options})
    assert not (tmp_path / "out").exists()


def test_the_operators_of_hop_tables_are_named_as_the_command_takes_them(graph: Dataset, tmp_path: Path) -> None:
    short = {**NEWER, "epochs": 1, "model": "sign", "hops": 1}
    train(graph, out=tmp_path / "old", operators=("sign", "row"), **short)
    with pytest.raises(SchemaError, match=r"has operators sign,row, this run sgc: .* --operator sign --operator row$"):
        train(graph, warm_start=str(tmp_path / "old"), operators=("sgc",), **short)


def test_what_is_no_model_is_refused_and_nothing_is_written(
    run: Path, newer: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    embed(small_triples(tmp_path / "triples"), out=tmp_path / "embedding", **{**EMBED_OPTIONS, "epochs": 1})
    broken = {name: tmp_path / name for name in ("missing", "damaged", "foreign", "stateless", "unfit")}
    for path in broken.values():
        shutil.copytree(run, path)
    (broken["missing"] / "model.safetensors").unlink()
    content = bytearray((run / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (broken["damaged"] / "model.safetensors").write_bytes(content)
    (broken["foreign"] / "model.safetensors").write_text("no tensors")
    (broken["stateless"] / "checkpoint.safetensors").unlink()
    config = (run / "config.toml").read_text()
    (broken["unfit"] / "config.toml").write_text(config.replace("hidden = 16", "hidden = 24"))
    cases = [
        (tmp_path / "none", "is no run of 'diskhop train', config.toml is missing"),
        (tmp_path / "embedding", "belongs to a run of kind 'embedding'"),
        (broken["missing"], "has no model, model.safetensors is missing; finish the run: diskhop train --resume"),
        (broken["damaged"], "model.safetensors: is damaged"),
        (broken["foreign"], "model.safetensors: is damaged"),
        (broken["stateless"], "checkpoint.safetensors: cannot be read: No such file"),
        (broken["unfit"], "model.safetensors: does not fit the model of config.toml"),
    ]
    for path, message in cases:
        words = ["train", str(newer.path), "--warm-start", str(path), "--keep-optimizer", "--epochs", "1"]
        out = tmp_path / "out"
        assert run_command([*words, "--memory", "100MB", "--out", str(out)]) == 2
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("diskhop: ")]
        assert len(lines) == 1
        assert message in lines[0]
        assert not out.exists()


LOST: tuple[Lost, ...] = ("names", "data")
RUN = Path("folder/run")


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
def test_wherever_a_crash_comes_the_run_ends_with_the_same_bytes(
    run: Path, newer: Dataset, tmp_path: Path, each_loses_both: bool
) -> None:
    """Every third crash loses names and data in turn, or every crash both."""
    options = {**NEWER, "epochs": 1, "max_batches": 1, "warm_start": str(run), "keep_optimizer": True}
    # A run that resumes reads from config.toml which store was chosen; here both are given the same.
    config = resolve_config(newer, {**options, "store": "memory"}).config
    num_changes = crash_at(tmp_path / "whole", 0, newer, config, {})
    for nth in range(1, num_changes + 1, 1 if each_loses_both else 3):
        survivors = {lost: tmp_path / f"{nth}-{lost}" for lost in (LOST if each_loses_both else (LOST[nth % 2],))}
        crash_at(tmp_path / f"{nth}", nth, newer, config, survivors)
        for folder in survivors.values():
            out = folder / RUN
            run_config(newer, config, out, resume=(out / "config.toml").exists())
            assert_same_run(tmp_path / "whole" / RUN, out)
            assert folder_bytes(out).keys() == folder_bytes(tmp_path / "whole" / RUN).keys()
            shutil.rmtree(folder)
