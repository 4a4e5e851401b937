"""Training as MariusGNN does: the same run from any store, and the refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.runs.nodes.packing import pack
from diskhop.runs.plan import plan_run
from diskhop.runs.start import train
from tests.runs import OPTIONS, assert_same_run, interrupt, small_graph

MARIUS: dict[str, Any] = {
    **OPTIONS,
    "self_term": False,
    "sampler": "marius",
    "node_partitions": 8,
    "resident_partitions": 4,
    "fanout": (4, 4),
    "eval_fanout": (4, 4),
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm")


def test_a_run_is_the_same_from_any_store(dataset: Dataset, tmp_path: Path) -> None:
    for store, threads in (("memory", 1), ("direct", 4), ("belady", 2), ("packed", 1)):
        train(dataset, **{**MARIUS, "store": store, "threads": threads}, out=tmp_path / store)
        assert_same_run(tmp_path / "memory", tmp_path / store)
    train(dataset, **{**MARIUS, "resident_partitions": 2, "store": "memory"}, out=tmp_path / "other")
    assert (tmp_path / "other" / "metrics.jsonl").read_text() != (tmp_path / "memory" / "metrics.jsonl").read_text()


def test_a_resumed_run_is_the_same(dataset: Dataset, tmp_path: Path) -> None:
    train(dataset, **MARIUS, out=tmp_path / "whole")
    interrupt(dataset, tmp_path / "resumed", 2, **MARIUS)
    train(dataset, out=tmp_path / "resumed", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "resumed")


@pytest.mark.fast("sage")
@pytest.mark.parametrize("model", ["sage", "gat"])
def test_it_learns_and_is_planned(dataset: Dataset, model: str) -> None:
    options: dict[str, Any] = {**MARIUS, "model": model, "epochs": 25, "lr": 0.01}
    result = train(dataset, **options, out=None).result
    assert result["test"]["accuracy"] > 0.6
    (ordering,) = result["preparation"]
    assert ordering["step"] == "order partitions"
    assert result["preparation_seconds_per_epoch"] == ordering["seconds"] / 25 > 0
    assert plan_run(dataset, **MARIUS).options


def test_partitions_are_chosen_for_the_memory(dataset: Dataset) -> None:
    options = {name: value for name, value in MARIUS.items() if "partitions" not in name}
    config = train(dataset, **options, out=None).config
    assert (config.node_partitions, config.resident_partitions) == (48, 48)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resident_partitions": 3}, "resident partitions must be twice a divisor of the 8 node partitions"),
        (
            {"sampler": "neighbor", "resident_partitions": 0},
            "--node-partitions 8 is for --sampler marius",
        ),
        ({"weighted": True}, "--weighted is for --sampler neighbor, got marius"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:20],
)
def test_what_does_not_fit_is_refused(dataset: Dataset, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train(dataset, **{**MARIUS, **options}, out=None)


def test_it_is_not_packed_ahead(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--sampler marius cannot be packed ahead"):
        pack(dataset, **MARIUS, scratch=str(tmp_path))
    result = train(dataset, **MARIUS, scratch=str(tmp_path), disk_bytes=10**9, store="packed", out=None).result
    assert not result["plan"].get("layout")
