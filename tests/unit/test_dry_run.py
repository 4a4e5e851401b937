"""Claims about what a step is measured to take: the tensors that are alive at once, and nothing is left behind."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from diskhop.nn.dry_run import measure_step
from diskhop.nn.models import Hoga, Sign, fastest_products

FLOAT_BYTES = 4


class Twice(nn.Module):
    """Keeps what it squares for the way back: one tensor for each layer, of the input's size."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self._layers = layers

    def forward(self, x: Tensor) -> Tensor:
        out = x[0] * self.weight
        for _ in range(self._layers):
            out = out.square()
        return out


def test_each_tensor_that_is_kept_for_the_way_back_counts() -> None:
    x = torch.zeros(1, 1000, 64)
    five, nine = (measure_step(partial(Twice, layers), x) for layers in (5, 9))
    assert nine - five == 4 * x.nbytes


def test_tensors_that_are_gone_do_not_count() -> None:
    class Passing(Twice):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                for _ in range(20):
                    x = x + 1
            return super().forward(x)

    x = torch.zeros(1, 1000, 64)
    most = measure_step(partial(Twice, 5), x) + 2 * x.nbytes
    assert measure_step(partial(Passing, 5), x) <= most


def test_parameters_count_with_their_gradient_and_the_optimisers_state() -> None:
    x = torch.zeros(1, 1, 2)
    small, large = (measure_step(partial(Wide, width), x) for width in (1000, 101_000))
    assert large - small >= 4 * 100_000 * FLOAT_BYTES


class Wide(nn.Module):
    """Parameters without work."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x[0] * self.weight[0]


def test_real_models_are_measured_alike_each_time_and_by_their_batch() -> None:
    products = fastest_products()
    x = torch.randn(3, 512, 16)
    for make in (lambda: Sign(16, 3, 32, 5, 2, products=products), lambda: Hoga(16, 3, 32, 5, 2, products=products)):
        once, again, half = measure_step(make, x), measure_step(make, x), measure_step(make, x[:, :256].clone())
        assert once == again
        assert half < once < 2 * half
        # All that the layers put out stays for the way back.
        assert once > 3 * 512 * 32 * FLOAT_BYTES


def test_the_generator_and_gradients_are_left_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    measure_step(lambda: nn.Sequential(nn.Flatten(0, 1), nn.Dropout(0.5), nn.Linear(4, 2)), torch.zeros(1, 6, 4))
    assert torch.equal(torch.rand(3), expected)
