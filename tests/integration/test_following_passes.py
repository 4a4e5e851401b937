"""A pass that is announced is begun while the one before is delivered: the same batches, without files left behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import diskhop
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import assumed_disk_model
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.pipeline import Pipeline, open_pipeline
from diskhop.pipeline.superbatch import Superbatch, SuperbatchMaker
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.plans import SampledPlan
from diskhop.policies.superbatches import FIRST_LENGTH
from diskhop.protocols import NodeRows, Purpose, neighbor_spec
from diskhop.sampling.seeds import SeedSet, count_batches
from diskhop.stores.stores import STORES
from tests.plans import with_share
from tests.runs import noisy_graph

SAMPLER = neighbor_spec((5, 4))
LOOKING_AHEAD = [name for name, kind in STORES.items() if kind.looks_ahead]
BATCH_SIZE = 20
SECONDS = 60

Values = list[tuple[int, bytes, bytes]]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return noisy_graph(tmp_path_factory.mktemp("graphs") / "sbm")


def plan_of(dataset: Dataset, store: str, **options: Any) -> SampledPlan:
    seeds = rows_of(dataset, "train")
    seed_set = SeedSet(purpose=Purpose.TRAIN, seeds=seeds, batch_size=BATCH_SIZE, sampler=SAMPLER, is_shuffled=False)
    workload = Workload(seed_sets=(seed_set,), seed=0, store=store, engine="threads", threads=2, **options)
    return choose_plan(dataset, workload, Budget(100_000_000), assumed_disk_model())


def rows_of(dataset: Dataset, split: str) -> NodeRows:
    rows = dataset.split_rows(split)
    assert rows is not None
    return rows


def pass_of(dataset: Dataset, epoch: int, purpose: Purpose = Purpose.TRAIN, numbers: Sequence[int] = ()) -> Pass:
    seeds = rows_of(dataset, purpose.name.lower())
    return Pass(
        seeds=seeds,
        numbers=numbers or range(count_batches(len(seeds), BATCH_SIZE)),
        batch_size=BATCH_SIZE,
        sampler=SAMPLER if purpose == Purpose.TRAIN else neighbor_spec((6, 6)),
        seed=3,
        purpose=purpose,
        epoch=epoch,
    )


def values_of(pipeline: Pipeline, wanted: Pass, following: Pass | None = None) -> Values:
    with pipeline.run(wanted, following=None if following is None else lambda: following) as batches:
        return [(each.number, each.sampled.node_ids.tobytes(), each.x.numpy().tobytes()) for each in batches]


def values_of_all(dataset: Dataset, plan: SampledPlan, *, announces: bool) -> list[Values]:
    """Train, validate, train a part in another order, train: as runs and ranks do."""
    passes = [
        partial(pass_of, dataset, 0),
        partial(pass_of, dataset, 0, Purpose.VALID),
        partial(pass_of, dataset, 1, numbers=range(38, 1, -2)),
        partial(pass_of, dataset, 2),
    ]
    with open_pipeline(dataset, plan, Budget(plan.memory_bytes)) as pipeline:
        return [
            values_of(pipeline, each(), following() if announces and following is not None else None)
            for each, following in zip(passes, [*passes[1:], None], strict=True)
        ]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[int, threading.Event]:
    """Events: a superbatch of an epoch is made."""
    events = {epoch: threading.Event() for epoch in range(3)}
    make = SuperbatchMaker.make

    def make_and_tell(self: SuperbatchMaker, *given: Any) -> Superbatch:
        superbatch = make(self, *given)
        events[self._settings.epoch].set()
        return superbatch

    monkeypatch.setattr(SuperbatchMaker, "make", make_and_tell)
    return events


def stage_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("diskhop_")]


@pytest.mark.fast("packed-3")
@pytest.mark.parametrize("superbatch", [3, 1000])
@pytest.mark.parametrize("store", LOOKING_AHEAD)
def test_batches_are_the_same_with_and_without_announcing(
    dataset: Dataset, tmp_path: Path, store: str, superbatch: int
) -> None:
    expected = values_of_all(dataset, plan_of(dataset, "direct"), announces=True)
    plan = with_share(plan_of(dataset, store, cache_bytes=20_000, scratch=str(tmp_path)), superbatch=superbatch)
    for announces in (True, False):
        assert values_of_all(dataset, plan, announces=announces) == expected
        assert not list(tmp_path.iterdir())


@pytest.mark.fast("packed")
@pytest.mark.parametrize("store", LOOKING_AHEAD)
def test_the_next_pass_is_begun_before_the_last_batch_is_released(
    dataset: Dataset, tmp_path: Path, store: str, made: dict[int, threading.Event]
) -> None:
    plan = plan_of(dataset, store, cache_bytes=20_000, scratch=str(tmp_path))
    with open_pipeline(dataset, plan, Budget(plan.memory_bytes)) as pipeline:
        with pipeline.run(pass_of(dataset, 0), following=lambda: pass_of(dataset, 1)) as batches:
            for _ in range(len(batches)):
                next(batches)
            assert made[1].wait(SECONDS), "while the stream has its last batch"
        assert pipeline._ahead is not None
        begun = pipeline._ahead._following
        assert begun is not None
        with pipeline.run(pass_of(dataset, 1)) as batches:
            assert pipeline._ahead is begun
            assert begun._maker._last_length > FIRST_LENGTH, "not the start of a run"
            assert len(list(batches)) == 40
        assert not stage_threads()


@pytest.mark.fast("packed")
@pytest.mark.parametrize("store", LOOKING_AHEAD)
def test_a_pass_that_is_not_run_next_is_dropped(
    dataset: Dataset, tmp_path: Path, store: str, made: dict[int, threading.Event]
) -> None:
    plan = plan_of(dataset, store, cache_bytes=20_000, scratch=str(tmp_path))
    with open_pipeline(dataset, plan, Budget(plan.memory_bytes)) as pipeline:
        expected = values_of(pipeline, pass_of(dataset, 2))
        values_of(pipeline, pass_of(dataset, 0), pass_of(dataset, 1))
        assert made[1].wait(SECONDS)
        assert values_of(pipeline, pass_of(dataset, 2)) == expected
        assert not list(tmp_path.rglob("trace-*"))
        # The announced pass, but other batches of it.
        values_of(pipeline, pass_of(dataset, 0), pass_of(dataset, 2))
        assert values_of(pipeline, pass_of(dataset, 2, numbers=range(1, 40))) == expected[1:]
        assert not stage_threads()
        values_of(pipeline, pass_of(dataset, 0), pass_of(dataset, 2))
    assert not list(tmp_path.iterdir())
    assert not stage_threads()


@pytest.mark.fast("packed")
@pytest.mark.parametrize("store", LOOKING_AHEAD)
def test_leaving_a_pass_early_drops_the_next_one(
    dataset: Dataset, tmp_path: Path, store: str, made: dict[int, threading.Event]
) -> None:
    plan = plan_of(dataset, store, cache_bytes=20_000, scratch=str(tmp_path))
    with open_pipeline(dataset, plan, Budget(plan.memory_bytes)) as pipeline:
        with pipeline.run(pass_of(dataset, 0), following=lambda: pass_of(dataset, 1)) as batches:
            for _ in range(len(batches) - 1):
                next(batches)
            assert made[1].wait(SECONDS)
        assert not stage_threads()
        assert not list(tmp_path.rglob("trace-*"))
        expected = values_of(pipeline, pass_of(dataset, 2))
        assert values_of(pipeline, pass_of(dataset, 2)) == expected


@pytest.mark.fast("belady")
@pytest.mark.parametrize("store", LOOKING_AHEAD)
def test_on_a_full_disk_the_next_pass_waits_for_this_one(dataset: Dataset, small_disk: Path, store: str) -> None:
    expected = values_of_all(dataset, plan_of(dataset, "direct"), announces=False)
    plan = with_share(plan_of(dataset, store, cache_bytes=4_000, scratch=str(small_disk)), superbatch=1000)
    room = os.statvfs(small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(room.f_bsize * room.f_bfree - 200 * 1024))
    assert values_of_all(dataset, plan, announces=True) == expected
    ballast.unlink()


@pytest.mark.fast("belady")
@pytest.mark.parametrize("store", LOOKING_AHEAD)
def test_a_run_trains_the_same_model_and_leaves_nothing(dataset: Dataset, tmp_path: Path, store: str) -> None:
    options: dict[str, Any] = {"hidden": 8, "fanout": (3, 3), "batch_size": 100, "memory": "100MB"}
    expected = diskhop.train(dataset, store="memory", epochs=3, eval_every=2, **options)
    found = diskhop.train(dataset, store=store, scratch=str(tmp_path), epochs=3, eval_every=2, **options)
    assert [each["valid"] for each in expected.result["epochs"] if "valid" in each] == [
        each["valid"] for each in found.result["epochs"] if "valid" in each
    ]
    for name, parameter in expected.model.state_dict().items():
        assert torch.equal(parameter, found.model.state_dict()[name])
    diskhop.train(dataset, store=store, scratch=str(tmp_path), epochs=9, patience=1, eval_every=1, **options)
    assert not list(tmp_path.iterdir())
    assert not stage_threads()
