"""A run on hop tables propagates first, learns, repeats to the last bit wherever they are, and says what it did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError
from diskhop.hops.make.propagate import propagate
from diskhop.hops.spec import PropagationSpec
from diskhop.nn.models import HOP_MODELS
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.nodes.packing import pack
from diskhop.runs.start import train
from tests.runs import StageCounter, assert_same_run, import_arrays, losses, random_arrays, small_graph

OPTIONS: dict[str, Any] = {
    "model": "sign",
    "hops": 2,
    "hidden": 16,
    "batch_size": 50,
    "epochs": 4,
    "lr": 0.01,
    "memory_bytes": 200_000_000,
    "threads": 1,
    "engine": "threads",
    "direction": "both",
}
FROM_DISK: dict[str, Any] = {"placement": "disk", "shuffle": "chunks"}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm")


def without(name: str) -> dict[str, Any]:
    return {option: value for option, value in OPTIONS.items() if option != name}


@pytest.mark.fast("sign", "sgc")
@pytest.mark.parametrize("model", HOP_MODELS)
def test_a_run_propagates_then_learns_and_leaves_what_it_found(tmp_path: Path, model: str) -> None:
    # Its own, so that its tables are not there.
    dataset = small_graph(tmp_path / "sbm")
    told = StageCounter()
    trained = train(dataset, out=tmp_path / "run", callbacks=[told], **{**OPTIONS, "model": model, "epochs": 20})
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result == json.loads(json.dumps(trained.result))
    assert result["test"]["accuracy"] > 0.7  # By chance 0.25.
    assert sum(step["bytes_read"] for step in result["preparation"]) > 0
    assert sum(step["bytes_written"] for step in result["preparation"]) > 0
    seconds = sum(step["seconds"] for step in result["preparation"])
    assert result["preparation_seconds_per_epoch"] == pytest.approx(seconds / 20)
    assert result["plan"]["reserved"].keys() >= {"labels", "seeds", "hop tables", "hop batches", "hop rows"}
    assert result["plan"]["placement"] == "memory"
    num_tables = 1 if model == "sgc" else 3
    assert result["plan"]["num_tables"] == num_tables
    for epoch in result["epochs"]:
        assert epoch["batches"] == 6
        assert epoch["rows_requested"] == epoch["rows_hit"] == 300 * num_tables
        assert epoch["bytes_needed"] == epoch["rows_requested"] * 16 * 4
        assert epoch["bytes_read"] == 0
    assert told.num_batches["train"] == 20 * 6
    again = train(dataset, **{**OPTIONS, "model": model, "epochs": 20})
    assert "preparation" not in again.result
    assert again.result["test"] == result["test"]


@pytest.mark.fast("disk")
@pytest.mark.parametrize("place", [{}, FROM_DISK], ids=["memory", "disk"])
def test_tables_of_all_rows_are_taken_where_they_are_there(
    tmp_path: Path, dataset: Dataset, place: dict[str, Any]
) -> None:
    spec = PropagationSpec(hops=2, direction="both")
    propagate(dataset, spec, memory="50MB", scratch=tmp_path / "scratch")
    of_all = train(dataset, **{**OPTIONS, **place, "scratch": str(tmp_path / "scratch")}).result
    assert len(list((tmp_path / "scratch").iterdir())) == 1
    assert "preparation" not in of_all
    labelled = train(dataset, **{**OPTIONS, **place}).result
    assert [epoch["loss"] for epoch in of_all["epochs"]] == [epoch["loss"] for epoch in labelled["epochs"]]


def test_tables_leave_memory_to_the_models_step(dataset: Dataset) -> None:
    found = {}
    for hidden in (16, 2048):
        options = {
            **OPTIONS,
            "model": "sign",
            "hidden": hidden,
            "max_batches": 1,
            "epochs": 1,
            "memory_bytes": 30_000_000,
        }
        plan = train(dataset, **options).result["plan"]
        assert "and one training step" in " ".join(plan["reasons"])
        found[hidden] = plan["placement"]
    assert found == {16: "memory", 2048: "disk"}


def test_a_run_from_disk_counts_what_it_reads(dataset: Dataset) -> None:
    result = train(dataset, **OPTIONS, **FROM_DISK).result
    assert result["plan"]["placement"] == "disk"
    for epoch in result["epochs"]:
        assert epoch["rows_hit"] == 0
        assert epoch["bytes_needed"] == 300 * 3 * 16 * 4
        assert epoch["bytes_read"] > 0


@pytest.mark.fast("sign")
@pytest.mark.parametrize("model", HOP_MODELS)
def test_config_toml_repeats_a_run_to_the_last_bit(dataset: Dataset, tmp_path: Path, model: str) -> None:
    train(dataset, out=tmp_path / "one", **{**OPTIONS, "model": model, "threads": 2})
    train(config=tmp_path / "one/config.toml", out=tmp_path / "two")
    assert_same_run(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "one/config.toml").read_bytes() == (tmp_path / "two/config.toml").read_bytes()


@pytest.mark.fast("chunks")
@pytest.mark.parametrize("shuffle", ["rows", "chunks"])
def test_where_the_tables_are_changes_time_never_values(dataset: Dataset, tmp_path: Path, shuffle: str) -> None:
    for place in ("memory", "disk"):
        train(dataset, out=tmp_path / place, **OPTIONS, placement=place, shuffle=shuffle)
    assert_same_run(tmp_path / "memory", tmp_path / "disk")


def test_chunks_are_another_course_of_training(dataset: Dataset, tmp_path: Path) -> None:
    for chunk_rows in (1, 20):
        train(dataset, out=tmp_path / str(chunk_rows), **OPTIONS, shuffle="chunks", chunk_rows=chunk_rows)
    assert losses(tmp_path / "1") != losses(tmp_path / "20")


@pytest.mark.fast("disk")
@pytest.mark.parametrize("changes", [{}, FROM_DISK], ids=["memory", "disk"])
def test_a_run_that_goes_on_is_the_run_that_was_never_stopped(
    dataset: Dataset, tmp_path: Path, changes: dict[str, Any]
) -> None:
    class StoppedError(Exception):
        pass

    class Stop(StageCounter):
        def epoch_done(self, record: dict[str, Any]) -> bool:
            if record["epoch"] == 1:
                raise StoppedError
            return False

    train(dataset, out=tmp_path / "whole", **OPTIONS, **changes)
    with pytest.raises(StoppedError):
        train(dataset, out=tmp_path / "stopped", callbacks=[Stop()], **OPTIONS, **changes)
    train(out=tmp_path / "stopped", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_max_batches_ends_an_epoch(dataset: Dataset) -> None:
    assert [epoch["batches"] for epoch in train(dataset, **OPTIONS, max_batches=2).result["epochs"]] == [2] * 4


def test_several_operators_have_tables_each(dataset: Dataset) -> None:
    result = train(dataset, **OPTIONS, operators=("sign", "ppr:alpha=0.2")).result
    assert result["plan"]["num_tables"] == 5


def test_half_precision_tables_learn_as_well(dataset: Dataset) -> None:
    assert train(dataset, **{**OPTIONS, "epochs": 20}, dtype="bfloat16").result["test"]["accuracy"] > 0.7


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"fanout": (4, 4)}, "--fanout is for sage, gcn, gat, not for model 'sign': remove it"),
        ({"store": "direct"}, "--store is for sage, gcn, gat, not for model 'sign'"),
        ({"reuse": True}, "--reuse is for sage, gcn, gat"),
        ({"model": "sage"}, "--hops is for sgc, sign, hoga, not for model 'sage'"),
        ({"hops": 0}, "hops must be from 1 to 100, got 0"),
        ({"operators": ("laplace",)}, "unknown operator 'laplace'.*sgc, sign, row, ppr, heat"),
        ({"operators": ("sign", "sign")}, "sign is given more than once"),
        ({"model": "sgc", "operators": ("sign", "sgc")}, "sgc takes one operator, got sign, sgc"),
        ({"direction": "up"}, "direction must be one of in, out, both"),
        ({"shuffle": "none"}, "shuffle must be one of auto, rows, chunks"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    dataset: Dataset, tmp_path: Path, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        train(dataset, out=tmp_path / "run", **{**OPTIONS, **options})
    assert not (tmp_path / "run").exists()


def test_a_graph_without_features_is_refused(tmp_path: Path) -> None:
    arrays = random_arrays()
    del arrays["x"]
    with pytest.raises(ConfigError, match="has no features to propagate"):
        train(import_arrays(tmp_path, **arrays), **OPTIONS)


def test_a_graph_without_splits_has_rows_for_all_nodes(tmp_path: Path) -> None:
    result = train(import_arrays(tmp_path, **random_arrays()), **OPTIONS).result
    assert result["plan"]["num_rows"] == 200


def test_a_budget_too_small_names_the_smallest(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match="the smallest that works is"):
        train(dataset, out=tmp_path / "run", **{**OPTIONS, "memory_bytes": 10_000})
    assert not (tmp_path / "run").exists()


def test_packing_is_not_for_hop_models(dataset: Dataset) -> None:
    with pytest.raises(ConfigError, match="--model sign has no batches to pack; use --model sage"):
        pack(dataset, **without("direction"))


def test_choices_come_with_reasons_that_fit_the_model(dataset: Dataset) -> None:
    config, choices, _ = resolve_config(dataset, {"model": "sgc", "threads": 1, "matmul": "blas"})
    named = {choice.option for choice in choices}
    assert named >= {"hops", "operators", "direction", "dtype", "shuffle", "chunk_rows", "placement"}
    assert not named & {"hidden", "layers", "norm", "fanout", "store"}
    assert config.layers == 1
