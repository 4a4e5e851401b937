"""Claims about waiting: it is charged to what the batch lacked meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from diskhop.budget import Budget
from diskhop.counters import WaitSeconds
from diskhop.dataset.dataset import Dataset
from diskhop.pipeline.parts import PipelineParts
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.pipeline.stages import Sample
from diskhop.pipeline.transfer import Destination, DeviceCopies
from tests.integration.test_pipeline import pass_over, plan_for
from tests.runs import small_graph

SECONDS, NUM_BATCHES = 0.02, 5


@pytest.fixture(scope="module")
def dataset(module_folder: Path) -> Dataset:
    return small_graph(module_folder / "sbm")


def slowed(work: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*arguments: Any, **named: Any) -> Any:
        time.sleep(SECONDS)
        return work(*arguments, **named)

    return slow


@pytest.mark.slow  # on a busy machine, the loop may be the one that is late
@pytest.mark.parametrize(
    ("slow", "with_device"), [("sampling", False), ("reading", False), ("reading", True), ("transfer", True)]
)
def test_a_wait_is_charged_to_the_slow_stage(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, slow: str, with_device: bool
) -> None:
    def move(*_: Any) -> None:
        if slow == "transfer":
            time.sleep(SECONDS)

    for stage, owner, name in (("sampling", Sample, "_sample"), ("reading", PipelineParts, "fetch_rows")):
        if stage == slow:
            monkeypatch.setattr(owner, name, slowed(getattr(owner, name)))
    destination = Destination(DeviceCopies(torch.device("cpu")), move) if with_device else None
    plan = plan_for(dataset)
    seeds = dataset.split_rows("train")
    assert seeds is not None
    waits = []
    with (
        open_pipeline(dataset, plan, Budget(plan.memory_bytes)) as pipeline,
        pipeline.run(pass_over(seeds, batch_size=60), destination=destination) as batches,
    ):
        for batch in batches:
            waits.append(batch.waits)
            assert batch.stall_seconds == pytest.approx(sum(batch.waits))
            del batch
    assert len(waits) == NUM_BATCHES
    waited = dict(zip(WaitSeconds._fields, map(sum, zip(*waits, strict=True)), strict=True))
    # The sleeps alone, which no stage but the slow one has: other work takes as long as the machine is busy.
    assert waited[slow] > 0.5 * SECONDS * NUM_BATCHES / max(1, plan.sampling_threads if slow == "sampling" else 1)


def test_the_time_is_divided_by_when_a_batch_got_further() -> None:
    assert WaitSeconds.between(asked=10, sampled=12, collected=15, delivered=16) == (2, 3, 1)
    # Ready before it was asked for, or never on a device.
    assert WaitSeconds.between(asked=10, sampled=2, collected=3, delivered=10.5) == (0, 0, 0.5)
    assert WaitSeconds.between(asked=10, sampled=2, collected=float("inf"), delivered=13) == (0, 3, 0)
