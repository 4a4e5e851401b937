"""A run that ends within an epoch goes on after the last step that was kept, and ends with the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diskhop.dataset.dataset import Dataset
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.checkpoint import EpochPart, load_state
from diskhop.runs.start import train
from diskhop.stores.stores import STORES
from tests.runs import OPTIONS, InterruptedRunError, StageCounter, assert_same_run, small_graph
from tests.typed_graphs import typed_dataset

LINKS: dict[str, Any] = {"task": "link", "batch_size": 700, "eval_batch_size": 500}
TABLES: dict[str, Any] = {"hops": 2, "fanout": None}
CASES: dict[str, dict[str, Any]] = {
    # Three batches per step; the last step of an epoch has fewer.
    "sage": {"accumulate": 4, "batch_size": 25, "norm": "batch", "lr_schedule": "cosine", "warmup": 1},
    "sign": {"model": "sign", **TABLES, "norm": "batch", "placement": "disk", "shuffle": "chunks"},
    "links": {**LINKS, "model": "gcn"},
    "learned rows": {"graph": "typed", "model": "hetero-sage", "batch_size": 9, "fanout": (3, 2)},
    "reused samples": {"store": "packed", "reuse": True},
}
SLOW_CASES: dict[str, dict[str, Any]] = {
    "gat": {"model": "gat", "heads": 2, "lr_schedule": "plateau", "plateau_patience": 1},
    "hoga": {"model": "hoga", **TABLES, "placement": "memory"},
    "labor": {"sampler": "labor", "batch_dependency": 2},
    "chosen nodes": {"sampler": "saint-node", "sample_coverage": 5, "fanout": None},
    "partitions": {"sampler": "marius"},
    "ranks of links": {**LINKS, "metric": "mrr"},
    "attention": {"graph": "typed", "model": "hgt", "heads": 2, "batch_size": 9, "fanout": (3, 2)},
    "packed ahead": {"store": "packed", "disk_bytes": 10**9},
    **{f"store {name}": {"store": name, "ordered": name == "shared"} for name in STORES},
}


class Stopper(Callback):
    """Ends a run after a batch of training in its second epoch."""

    def __init__(self, batch: int) -> None:
        self._batch = batch

    def batch_done(self, progress: BatchProgress) -> None:
        if (progress.stage, progress.epoch, progress.batch) == ("train", 1, self._batch):
            raise InterruptedRunError


@pytest.fixture(scope="module")
def graphs(module_folder: Path) -> dict[str, Dataset]:
    return {"sbm": small_graph(module_folder / "sbm"), "typed": typed_dataset(module_folder / "typed")[1]}


def options_of(case: dict[str, Any]) -> dict[str, Any]:
    options = {**OPTIONS, "epochs": 3, **case}
    return {name: value for name, value in options.items() if value is not None and name != "graph"}


def stop(dataset: Dataset, out: Path, batch: int, **options: Any) -> EpochPart | None:
    """Train until a batch of the second epoch, and return what was kept of it."""
    with pytest.raises(InterruptedRunError):
        train(dataset, out=out, callbacks=[Stopper(batch)], **options)
    return load_state(out / "checkpoint.safetensors").part


@pytest.mark.fast("sage", "links", "sign")
@pytest.mark.parametrize("name", [*CASES, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW_CASES)])
def test_a_run_resumes_within_an_epoch_to_the_same_bytes(graphs: dict[str, Dataset], tmp_path: Path, name: str) -> None:
    case = (CASES | SLOW_CASES)[name]
    dataset, options = graphs[case.get("graph", "sbm")], options_of(case)
    counted = StageCounter()
    train(dataset, out=tmp_path / "whole", callbacks=[counted], **options)
    num_batches, rest = divmod(counted.num_batches["train"], options["epochs"])
    assert rest == 0
    assert num_batches > 4

    step = options.get("accumulate", 1)
    out = tmp_path / "stopped"
    # The batch that the run is stopped after is not kept: the callback comes first.
    part = stop(dataset, out, step + 3, checkpoint_every=f"{step} batches", **options)
    assert part is not None
    num_kept = (step + 2) // step * step
    assert len(part.done) == part.record["batches"] == num_kept

    counted = StageCounter()
    resumed = train(dataset, out=out, resume=True, callbacks=[counted])
    assert counted.num_batches["train"] == 2 * num_batches - num_kept
    assert_same_run(tmp_path / "whole", out)
    record = resumed.result["epochs"][1]
    assert record["batches"] == num_batches
    assert record["rows_requested"] >= part.record["rows_requested"]
    assert load_state(out / "checkpoint.safetensors").part is None


def test_batches_that_come_in_any_order_are_each_trained_once(graphs: dict[str, Dataset], tmp_path: Path) -> None:
    options = options_of({"store": "shared", "ordered": False, "batch_size": 25})
    part = stop(graphs["sbm"], tmp_path / "run", 7, checkpoint_every="2 batches", **options)
    assert part is not None
    assert len(set(part.done.tolist())) == 6
    counted = StageCounter()
    train(graphs["sbm"], out=tmp_path / "run", resume=True, callbacks=[counted])
    assert counted.num_batches["train"] == 2 * 12 - 6


def test_a_run_is_kept_within_an_epoch_by_number_and_else_at_its_end(
    graphs: dict[str, Dataset], tmp_path: Path
) -> None:
    """In ten minutes, the default, this one is over."""
    for name, every in (("time", {}), ("ends", {"checkpoint_every": "epoch"})):
        assert stop(graphs["sbm"], tmp_path / name, 5, **every, **OPTIONS) is None
        counted = StageCounter()
        # Another interval is no other run.
        train(graphs["sbm"], out=tmp_path / name, resume=True, checkpoint_every="3 batches", callbacks=[counted])
        assert counted.num_batches["train"] == 3 * 6


def test_validation_that_was_not_done_follows_the_last_batch(graphs: dict[str, Dataset], tmp_path: Path) -> None:
    class InValidation(Callback):
        def batch_done(self, progress: BatchProgress) -> None:
            if (progress.stage, progress.epoch) == ("valid", 1):
                raise InterruptedRunError

    train(graphs["sbm"], out=tmp_path / "whole", **OPTIONS)
    out = tmp_path / "stopped"
    with pytest.raises(InterruptedRunError):
        train(graphs["sbm"], out=out, checkpoint_every="6 batches", callbacks=[InValidation()], **OPTIONS)
    counted = StageCounter()
    train(graphs["sbm"], out=out, resume=True, callbacks=[counted])
    assert counted.num_batches["train"] == 2 * 6
    assert_same_run(tmp_path / "whole", out)
