"""Losses equal their own formulas in float64, and the means of several batches combine to that of all."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from diskhop.nn.losses import BatchLoss, ClassLoss, TaskLoss, ValueLoss
from diskhop.runs.nodes.objective import Objective
from diskhop.runs.nodes.subgraphs import SubgraphBatch, SubgraphPart
from tests.examples import examples

Floats = NDArray[np.float64]
NUM_COLUMNS = 4
OPTIONS: list[dict[str, Any]] = [
    {},
    {"weighted": True},
    {"smoothing": 0.2},
    {"weighted": True, "smoothing": 0.2},
    {"focal_gamma": 2.0},
    {"focal_gamma": 0.5, "weighted": True},
]
WEIGHTS = np.array([0.5, 1.0, 2.0, 3.5])


def class_loss(logits: Floats, labels: NDArray[Any], weights: Floats, gamma: float, smoothing: float) -> float:
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    of_node = -log_p[np.arange(len(labels)), labels]
    smooth = -(log_p * weights).sum(axis=1) / logits.shape[1]
    losses = (1 - np.exp(-of_node)) ** gamma * of_node * weights[labels] * (1 - smoothing) + smoothing * smooth
    return float(losses.sum() / weights[labels].sum())


def task_loss(logits: Floats, labels: Floats, weights: Floats, gamma: float, smoothing: float) -> float:
    p = 1 / (1 + np.exp(-logits))
    target = labels * (1 - smoothing) + smoothing / 2
    doubt = np.abs(labels - p) ** gamma
    losses = doubt * -(weights * target * np.log(p) + (1 - target) * np.log(1 - p))
    return float(losses[~np.isnan(labels)].mean())


def random_case(seed: int, num_nodes: int) -> tuple[Floats, NDArray[Any], Floats]:
    """Logits, classes, and tasks of which the first is known."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(scale=2, size=(num_nodes, NUM_COLUMNS)).astype(np.float32)
    tasks = generator.choice([0.0, 1.0, np.nan], (num_nodes, NUM_COLUMNS))
    tasks[:, 0] = generator.integers(0, 2, num_nodes)
    return logits.astype(np.float64), generator.integers(0, NUM_COLUMNS, num_nodes), tasks


def made(kind: Callable[..., Any], options: dict[str, Any]) -> tuple[Any, tuple[Floats, float, float]]:
    """A loss, and the weights, gamma and smoothing of its formula."""
    given = {"focal_gamma": 0.0, "smoothing": 0.0, **options}
    weighted = given.pop("weighted", False)
    loss = kind(torch.from_numpy(WEIGHTS).float() if weighted else None, **given)
    return loss, (WEIGHTS if weighted else np.ones(NUM_COLUMNS), given["focal_gamma"], given["smoothing"])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@examples(30)
@given(seed=st.integers(0, 10**6), num_nodes=st.integers(1, 50))
def test_losses_equal_their_formulas(options: dict[str, Any], seed: int, num_nodes: int) -> None:
    logits, classes, tasks = random_case(seed, num_nodes)
    outputs = torch.from_numpy(logits).float()
    loss, formula = made(ClassLoss, options)
    assert float(loss(outputs, torch.from_numpy(classes)).mean) == pytest.approx(
        class_loss(logits, classes, *formula), rel=2e-5
    )
    loss, formula = made(TaskLoss, options)
    assert float(loss(outputs, torch.from_numpy(tasks).float()).mean) == pytest.approx(
        task_loss(logits, tasks, *formula), rel=2e-5
    )


@pytest.mark.parametrize("is_absolute", [False, True])
def test_losses_of_values_equal_their_formulas(is_absolute: bool) -> None:
    outputs, _, tasks = random_case(1, 40)
    errors = (outputs - tasks)[~np.isnan(tasks)]
    found = ValueLoss(is_absolute=is_absolute)(torch.from_numpy(outputs), torch.from_numpy(tasks))
    expected = np.abs(errors).mean() if is_absolute else (errors**2).mean()
    assert float(found.mean) == pytest.approx(expected, rel=1e-12)
    assert found.weight == len(errors)


def all_losses() -> list[tuple[str, Callable[[Tensor, Tensor], BatchLoss], str]]:
    found: list[tuple[str, Any, str]] = [
        (f"values, absolute {each}", ValueLoss(is_absolute=each), "tasks") for each in (False, True)
    ]
    for options in OPTIONS:
        found += [(f"classes {options}", made(ClassLoss, options)[0], "classes")]
        found += [(f"tasks {options}", made(TaskLoss, options)[0], "tasks")]
    return found


@pytest.mark.parametrize(
    ("name", "loss", "what"), all_losses(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_means_of_batches_combine_to_that_of_all(name: str, loss: Any, what: str) -> None:
    logits, classes, tasks = random_case(3, 60)
    outputs = torch.from_numpy(logits).float()
    labels = torch.from_numpy(classes) if what == "classes" else torch.from_numpy(tasks).float()
    whole = loss(outputs, labels)
    parts = [loss(outputs[cut], labels[cut]) for cut in (slice(0, 13), slice(13, 40), slice(40, 60))]
    weight = sum(part.weight for part in parts)
    assert weight == pytest.approx(whole.weight, rel=1e-6)
    assert float(sum(part.mean * part.weight for part in parts)) / weight == pytest.approx(float(whole.mean), rel=1e-5)


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_the_focal_loss_of_a_certain_node_has_a_finite_gradient(gamma: float) -> None:
    for kind, labels in ((ClassLoss, torch.tensor([0])), (TaskLoss, torch.tensor([[1.0, 0.0]]))):
        outputs = torch.tensor([[200.0, -200.0]], requires_grad=True)
        torch.autograd.backward(kind(focal_gamma=gamma)(outputs, labels).mean)
        assert outputs.grad is not None
        assert outputs.grad.isfinite().all()


@pytest.mark.parametrize(("has_norms", "weight"), [(True, 1.0), (False, 0.0)])
def test_a_batch_without_training_nodes_counts_in_a_mean_over_batches(has_norms: bool, weight: float) -> None:
    norms = torch.empty(0) if has_norms else None
    mini: Any = SimpleNamespace(
        prepared=SubgraphPart(np.empty(0, np.int64), None, norms, norms),
        sampled=SimpleNamespace(node_ids=np.arange(4)),
    )
    outputs = torch.empty((0, NUM_COLUMNS), requires_grad=True)
    loss = Objective(np.zeros(4, np.int64), ClassLoss(), None).loss(outputs, SubgraphBatch(mini))
    assert (float(loss.mean.detach()), loss.weight) == (0.0, weight)
