"""Learning rates equal those of torch's schedulers."""

from __future__ import annotations

import operator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, ReduceLROnPlateau, SequentialLR

from diskhop.nn.schedules import count_plateaus, step_factor
from tests.examples import examples


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)


def rates(scheduler: LRScheduler, num_steps: int) -> list[float]:
    found = []
    for _ in range(num_steps):
        found.append(scheduler.optimizer.param_groups[0]["lr"])
        scheduler.optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("num_steps", [1, 2, 17, 100])
def test_the_cosine_is_torchs(num_steps: int) -> None:
    expected = rates(CosineAnnealingLR(optimizer(), T_max=num_steps), num_steps)
    found = [step_factor(step, num_steps, warmup=0, is_cosine=True) for step in range(num_steps)]
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("is_cosine", [False, True])
def test_the_warm_up_is_torchs(is_cosine: bool) -> None:
    warmup, num_steps = 7, 40
    base = optimizer()
    rising = LinearLR(base, start_factor=1 / warmup, total_iters=warmup - 1)
    after = CosineAnnealingLR(base, T_max=num_steps - warmup) if is_cosine else LinearLR(base, 1.0, total_iters=1)
    expected = rates(SequentialLR(base, [rising, after], milestones=[warmup]), num_steps)
    found = [step_factor(step, num_steps, warmup=warmup, is_cosine=is_cosine) for step in range(num_steps)]
    assert found == pytest.approx(expected, abs=1e-12)


def test_a_warm_up_longer_than_training_only_rises() -> None:
    assert [step_factor(step, 2, warmup=4, is_cosine=True) for step in range(2)] == [0.25, 0.5]


@examples(100)
@given(values=st.lists(st.integers(0, 5), max_size=30), patience=st.integers(1, 4), is_error=st.booleans())
def test_plateaus_are_torchs(values: list[int], patience: int, is_error: bool) -> None:
    scheduler = ReduceLROnPlateau(
        optimizer(), mode="min" if is_error else "max", factor=0.5, patience=patience - 1, threshold=0.0, eps=0.0
    )
    is_better = operator.lt if is_error else operator.gt
    for number, value in enumerate(values):
        scheduler.step(value)
        expected = scheduler.optimizer.param_groups[0]["lr"]
        assert 0.5 ** count_plateaus(values[: number + 1], patience, is_better) == expected
