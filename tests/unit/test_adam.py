"""Adam against torch.optim.Adam, seeds against torch.manual_seed, and what a process imports that uses them."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from diskhop.nn.adam import Adam
from diskhop.nn.reproducible import seed_torch


def parameters() -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(shape)) for shape in ((3, 5), (7,), (2, 2))]


def give_gradients(to: list[nn.Parameter], step: int) -> None:
    """Leave some parameters without a gradient: the last one in the first two steps, the second one later."""
    for number, parameter in enumerate(to):
        left_out = number == 2 if step < 2 else number == 1 and step % 2 == 0
        parameter.grad = None if left_out else (parameter.detach() + step).sin()


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_steps_are_those_of_torch(weight_decay: float) -> None:
    ours, theirs = parameters(), parameters()
    adam, expected = Adam(ours, 0.1, weight_decay), torch.optim.Adam(theirs, 0.1, weight_decay=weight_decay, fused=True)
    for step in range(6):
        adam.lr = expected.param_groups[0]["lr"] = 0.1 / (1 + step)
        give_gradients(ours, step)
        give_gradients(theirs, step)
        adam.step()
        expected.step()
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    state: dict[int, dict[str, Tensor]] = expected.state_dict()["state"]
    named = {f"{number}.{name}": value for number, values in state.items() for name, value in values.items()}
    assert adam.tensors().keys() == named.keys()
    assert all(torch.equal(value, named[name]) for name, value in adam.tensors().items())
    adam.zero_grad()
    assert all(each.grad is None for each in ours)


def test_a_restored_optimiser_takes_the_same_steps() -> None:
    ours = parameters()
    adam = Adam(ours, 0.1)
    give_gradients(ours, 0)
    adam.step()
    twins = [nn.Parameter(each.detach().clone()) for each in ours]
    twin = Adam(twins, 0.1)
    twin.restore(adam.tensors())
    for step in range(1, 4):
        for parameters_, optimiser in ((ours, adam), (twins, twin)):
            give_gradients(parameters_, step)
            optimiser.step()
        assert all(torch.equal(one, other) for one, other in zip(ours, twins, strict=True))


def test_training_does_not_import_the_compiler_of_torch() -> None:
    code = """
import sys
import torch
from diskhop.nn.adam import Adam
from diskhop.nn.reproducible import reproducible
with reproducible(1):
    layer = torch.nn.Linear(2, 2)
    adam = Adam(layer.parameters(), 0.1)
    layer(torch.ones(1, 2)).sum().backward()
    adam.step()
    assert torch.are_deterministic_algorithms_enabled()
print(sorted({"torch._dynamo", "torch._inductor"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_seed_draws_what_torch_draws_of_it() -> None:
    torch.manual_seed(7)
    expected = torch.randn(9)
    torch.randn(1)
    seed_torch(7, torch.device("cpu"))
    assert torch.equal(torch.randn(9), expected)
