"""Epochs with --reuse train on the samples of the first, each in its own order; without it, on new ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from diskhop._native import keyed_permutation
from diskhop.config.node_kinds import KINDS
from diskhop.config.options import dump_config, load_config
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.pipeline.batch import MiniBatch
from diskhop.pipeline.stream import BatchStream
from diskhop.protocols import Purpose
from diskhop.runs.callbacks import Callback
from diskhop.runs.start import train
from diskhop.runs.training import Trained
from diskhop.stores.stores import STORES
from tests.runs import OPTIONS, assert_same_run, losses, small_graph

EPOCHS, NUM_BATCHES = 4, 50
# More batches than the first superbatch has.
REUSED: dict[str, Any] = {
    **OPTIONS,
    "batch_size": 6,
    "epochs": EPOCHS,
    "reuse": True,
    "ordered": True,
    "evaluate": False,
    "dropout": 0.5,
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm")


class StoppedError(Exception):
    pass


class StopAfter(Callback):
    """Ends the run in the epoch after this one."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._is_due = False

    def epoch_done(self, record: dict[str, Any]) -> bool:
        self._is_due = record["epoch"] == self._epoch
        return False

    def batch_done(self, progress: Any) -> None:
        if self._is_due and progress.batch == 3:
            raise StoppedError


@contextmanager
def watched_batches() -> Iterator[list[tuple[int, str]]]:
    """Number and a digest of all that is in it, of every batch that a model gets."""
    seen: list[tuple[int, str]] = []
    take_next = BatchStream.__next__

    def watching(self: BatchStream) -> MiniBatch:
        batch = take_next(self)
        sampled = batch.sampled
        features = batch.x.numpy() if batch.rows is None else batch.x.numpy()[batch.rows]
        arrays = (sampled.node_ids, sampled.indptr, sampled.sources, sampled.edge_positions, features)
        digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
        seen.append((sampled.number, digest))
        return batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchStream, "__next__", watching)
        yield seen


def epochs_of(dataset: Dataset, **options: Any) -> tuple[list[list[tuple[int, str]]], Trained]:
    """The batches of every epoch, and what was trained."""
    with watched_batches() as seen:
        trained = train(dataset, **{**REUSED, **options})
    counts = [epoch["batches"] for epoch in trained.result["epochs"]]
    assert sum(counts) == len(seen)
    return [[seen.pop(0) for _ in range(count)] for count in counts], trained


@pytest.fixture(scope="module")
def expected(dataset: Dataset) -> tuple[list[tuple[int, str]], list[float]]:
    """The first epoch of a run that does not reuse, and the losses of one that does."""
    (first, *_), _ = epochs_of(dataset, store="memory", reuse=False, epochs=1)
    result = train(dataset, **{**REUSED, "store": "memory"}).result
    return first, [epoch["loss"] for epoch in result["epochs"]]


@pytest.mark.fast("packed", "belady")
@pytest.mark.parametrize("store", STORES)
def test_every_epoch_has_the_batches_of_the_first_in_an_order_of_its_own(
    dataset: Dataset, store: str, expected: tuple[list[tuple[int, str]], list[float]]
) -> None:
    drawn, expected_losses = expected
    epochs, trained = epochs_of(dataset, store=store)
    first, *others = epochs
    assert len(epochs) == EPOCHS
    assert first == drawn
    assert [number for number, _ in first] == list(range(NUM_BATCHES))
    for epoch in others:
        assert sorted(epoch) == first
    orders = [tuple(number for number, _ in epoch) for epoch in epochs]
    assert len(set(orders)) == EPOCHS
    assert [epoch["loss"] for epoch in trained.result["epochs"]] == expected_losses
    # Dropout is random again: the same batch is not the same step.
    assert len(set(expected_losses)) == EPOCHS


def test_batches_as_they_are_finished_are_those_of_the_first_too(dataset: Dataset) -> None:
    first, *others = epochs_of(dataset, store="shared", ordered=False)[0]
    assert all(sorted(epoch) == sorted(first) for epoch in others)


def test_without_it_every_epoch_draws_again(dataset: Dataset) -> None:
    epochs, trained = epochs_of(dataset, reuse=False)
    digests = [digest for epoch in epochs for _, digest in epoch]
    assert len(set(digests)) == len(digests)
    assert trained.result["reuse"] is False
    assert not any("reused" in reason for reason in trained.result["plan"]["reasons"])


def test_the_batches_reused_are_as_many_of_the_first_as_an_epoch_may_have(
    dataset: Dataset, expected: tuple[list[tuple[int, str]], list[float]]
) -> None:
    for store in ("direct", "belady", "packed"):
        first, *others = epochs_of(dataset, max_batches=20, store=store)[0]
        assert first == expected[0][:20]
        assert all(sorted(epoch) == first and epoch != first for epoch in others)
    # More than there are is all.
    assert sorted(epochs_of(dataset, max_batches=1000, epochs=2)[0][1]) == expected[0]


@pytest.mark.fast("packed")
@pytest.mark.parametrize("store", ["direct", "belady", "packed"])
def test_resuming_ends_with_the_bytes_of_a_run_never_stopped(dataset: Dataset, tmp_path: Path, store: str) -> None:
    options = {**REUSED, "store": store, "max_batches": 30}
    train(dataset, out=tmp_path / "whole", **options)
    with pytest.raises(StoppedError):
        train(dataset, out=tmp_path / "stopped", callbacks=[StopAfter(1)], **options)
    assert len(losses(tmp_path / "stopped")) == 2
    train(out=tmp_path / "stopped", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")
    with pytest.raises(ConfigError, match="--reuse is True in the run, not False; remove --reuse, or"):
        train(out=tmp_path / "stopped", resume=True, reuse=False)


def test_the_run_says_so_once_and_keeps_it(dataset: Dataset, tmp_path: Path) -> None:
    trained = train(dataset, out=tmp_path / "run", **{**REUSED, "epochs": 1})
    reasons = [reason for reason in trained.result["plan"]["reasons"] if "reused" in reason]
    assert len(reasons) == 1
    assert reasons[0].startswith("Samples: drawn once and reused")
    assert "changes what is drawn" in reasons[0]
    assert trained.result["reuse"] is True
    assert load_config(tmp_path / "run" / "config.toml", KINDS).options["reuse"] is True
    assert "reuse = true" in dump_config(trained.config, "node", "", "")


def test_the_order_shares_no_key_with_the_seeds(dataset: Dataset) -> None:
    assert Purpose.BATCH_ORDER not in (Purpose.TRAIN, Purpose.VALID, Purpose.TEST, Purpose.INFER, Purpose.NEGATIVES)
    epochs, _ = epochs_of(dataset, seed=3)
    for epoch, batches in enumerate(epochs[1:], start=1):
        expected = keyed_permutation(NUM_BATCHES, 3, int(Purpose.BATCH_ORDER), epoch)
        assert [number for number, _ in batches] == expected.tolist()
