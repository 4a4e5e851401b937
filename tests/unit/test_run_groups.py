"""Claims about runs that differ only in their seed: which they are, what is drawn of them, and what the table says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.reporting.batch_times import batch_figure
from diskhop.reporting.courses import course_figures, time_figure
from diskhop.reporting.groups import comparison_table, group_runs
from diskhop.reporting.page import render
from diskhop.reporting.records import RunRecord

CONFIG: dict[str, Any] = {
    "kind": "node", "dataset": "/data/graph", "dataset_hash": "1", "model": "sage", "epochs": 2, "lr": 0.01, "seed": 0,
    "metric": "accuracy", "memory_bytes": 10**9, "store": "direct", "scratch": "", "fanout": [5, 5],
}  # fmt: skip


def record(
    name: str, valid: Sequence[float] = (0.5, 0.6), test: float | None = 0.5, **changes: Any
) -> tuple[RunRecord, str]:
    epochs = [
        {
            "epoch": epoch,
            "loss": 1 - value,
            "valid": value,
            "seconds": 2.0,
            "compute_seconds": 1.0,
            "stall_seconds": 0.5,
        }
        for epoch, value in enumerate(valid)
    ]
    result: Mapping[str, Any] | None = None
    if test is not None:
        result = {
            "dataset": "graph", "metric": "accuracy", "test": {"accuracy": test}, "peak_rss_bytes": 10**6,
            "overhead_bytes": 1,
        }  # fmt: skip
    return RunRecord(Path(name), "node", {**CONFIG, **changes}, epochs, None, None, result, None), name


def unzipped(*records: tuple[RunRecord, str]) -> tuple[list[RunRecord], list[str]]:
    return [run for run, _ in records], [name for _, name in records]


def groups_of(*records: tuple[RunRecord, str]) -> list[list[str]]:
    runs, names = unzipped(*records)
    of_run = dict(zip(map(id, runs), names, strict=True))
    return [[of_run[id(run)] for run in group.runs] for group in group_runs(runs, names)]


def test_only_the_seed_may_differ() -> None:
    one, two = record("s-0"), record("s-1", seed=1)
    assert groups_of(one, two) == [["s-0", "s-1"]]
    assert groups_of(one, record("g-1", seed=1, model="gcn"), two) == [["s-0", "s-1"], ["g-1"]]
    # A copy of the dataset has the same content; the free memory is different in every run.
    assert groups_of(one, record("b", seed=1, dataset="/other/copy", memory_bytes=7, scratch="/tmp")) == [["s-0", "b"]]
    assert groups_of(one, record("b", seed=1, dataset_hash="2")) == [["s-0"], ["b"]]


def test_a_seed_twice_is_a_comparison_of_something_else() -> None:
    """Two memories with the same seeds are two groups; equal runs are never averaged."""
    large = [record(f"large-{seed}", seed=seed) for seed in range(2)]
    small = [record(f"small-{seed}", seed=seed, memory_bytes=5) for seed in range(2)]
    assert groups_of(*large, *small) == [["large-0", "large-1"], ["small-0", "small-1"]]
    assert groups_of(record("one"), record("again")) == [["one"], ["again"]]


def test_groups_are_called_by_what_their_names_begin_with() -> None:
    def titles(*records: tuple[RunRecord, str]) -> list[str]:
        return [group.name for group in group_runs(*unzipped(*records))]

    assert titles(record("sage-0"), record("sage-1", seed=1)) == ["sage-*"]
    assert titles(record("x"), record("y", seed=1), record("z", lr=3.0)) == ["x, ...", "z"]
    both = [record(f"r{n}", seed=n) for n in range(2)] + [record(f"r{n}", seed=n, lr=1.0) for n in range(2, 4)]
    assert titles(*both) == ["r0, ...", "r2, ..."]


def test_a_band_is_from_the_lowest_to_the_highest_around_the_mean() -> None:
    runs, names = unzipped(
        record("s-0", (0.1, 0.2, 0.9)), record("s-1", (0.3, 0.6), seed=1), record("g", (0.4, 0.5), model="gcn")
    )
    _, valid = course_figures(group_runs(runs, names))
    lines = {trace["name"]: trace for trace in valid.data}
    assert list(lines) == ["s-* (2 seeds), lowest", "s-* (2 seeds), highest", "s-* (2 seeds), mean", "g"]
    assert lines["s-* (2 seeds), lowest"]["y"] == [0.1, 0.2]
    assert lines["s-* (2 seeds), highest"]["y"] == [0.3, 0.6]
    assert lines["s-* (2 seeds), mean"]["y"] == pytest.approx([0.2, 0.4])
    assert lines["s-* (2 seeds), mean"]["x"] == [1, 2], "the third epoch is of one run alone"
    assert "up to epoch 2, which all its runs have" in valid.note
    assert "from the lowest to the highest seed" in valid.note
    compared = time_figure(group_runs(runs, names))
    assert compared is not None
    assert [trace["y"] for trace in compared.data] == [[1.0, 1.0], [0.5, 0.5], [0.5, 0.5]]
    assert time_figure(group_runs(runs[:2], names[:2])) is None, "one group has nothing to compare"


def test_the_table_has_what_differs_and_means_with_deviations() -> None:
    tests = [0.5, 0.7, 0.6]
    seeds = [record(f"s-{seed}", seed=seed, test=test) for seed, test in enumerate(tests)]
    runs, names = unzipped(*seeds, record("g", lr=0.1, store="static", test=None))
    table = comparison_table(group_runs(runs, names))
    assert table is not None
    first, second = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    assert {name: first[name] for name in ("run", "seeds", "lr", "store")} == {
        "run": "s-*", "seeds": "3", "lr": "0.01", "store": "direct",
    }  # fmt: skip
    assert first["test"] == f"{np.mean(tests):.4f} ± {np.std(tests, ddof=1):.4f} accuracy"
    assert second["test"] == ""
    assert "model" not in first
    assert "seed" not in first
    assert comparison_table(group_runs(runs[:1], names[:1])) is None
    unfinished = [*seeds[:2], record("s-3", seed=3, test=None)]
    (group,) = group_runs(*unzipped(*unfinished))
    (row,) = comparison_table([group]).rows  # type: ignore[union-attr]
    assert "0.6000 ± 0.1414 accuracy, 2 of 3 runs" in row
    assert "mean ± standard deviation" in render(runs)
    assert "Comparison" not in render(runs[:1])


def test_waits_are_drawn_for_batches_that_a_run_kept() -> None:
    run, _ = record("run")
    assert batch_figure(run) is None
    kept = {"first": 2, "sampling": [0.0, 0.0], "reading": [1.0, 3.0], "computing": [2.0, 4.0], "other": [0.0, 0.0]}
    run.epochs[1] |= {"batch_seconds": kept, "batches": 4}
    drawn = batch_figure(run)
    assert drawn is not None
    assert {trace["name"]: trace["y"] for trace in drawn.data} == {"model": [2.0, 4.0], "waiting for rows": [1.0, 3.0]}
    assert drawn.data[0]["x"] == [3, 4]
    assert "batches 3 to 4 of 4 in epoch 2; waiting for rows 40%" in drawn.note
    assert "Batch by batch" in render([run])


def test_waits_for_partitions_are_drawn_state_by_state() -> None:
    run, _ = record("run")
    run.epochs[1] |= {"state_seconds": {"first": 0, "training": [2.0, 1.0], "waiting": [0.0, 1.0]}}
    drawn = batch_figure(run)
    assert drawn is not None
    assert drawn.title == "State by state"
    assert [trace["y"] for trace in drawn.data] == [[2.0, 1.0], [0.0, 1.0]]
    assert drawn.note == "the training loop, states 1 to 2 in epoch 2; waiting for partitions 25%"
    run.epochs[1]["state_seconds"] = {"first": 0, "training": [2.0], "waiting": [0.0]}
    assert batch_figure(run) is None, "a single state has nothing to wait for"
