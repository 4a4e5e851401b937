"""Claims about norms: PyTorch's values and gradients, with its parameters."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from diskhop.nn.matmul.products import DEFAULT_PRODUCTS
from diskhop.nn.matmul.rectifier import Rectifier
from diskhop.nn.norms import LayerNorm


@pytest.mark.parametrize("rectifies", [False, True])
@pytest.mark.parametrize("num_rows", [0, 1, 63, 5000])
@pytest.mark.parametrize("dim", [5, 16, 47])
def test_layer_norm_is_pytorchs(num_rows: int, dim: int, rectifies: bool) -> None:
    torch.manual_seed(0)
    theirs, ours = torch.nn.LayerNorm(dim), LayerNorm(dim, DEFAULT_PRODUCTS)
    torch.nn.init.normal_(theirs.weight)
    torch.nn.init.normal_(theirs.bias)
    ours.load_state_dict(theirs.state_dict())
    x = (3 * torch.randn(num_rows, dim) + 5).requires_grad_()
    grad = torch.randn(num_rows, dim)
    rectifier = Rectifier(dropout=0.0, seed=0) if rectifies else None
    outputs = functional.relu(theirs(x)) if rectifies else theirs(x), ours(x, rectifier)
    parameters = [*theirs.parameters()], [*ours.parameters()]
    results = [
        (out, *torch.autograd.grad([out], [x, *owned], [grad])) for out, owned in zip(outputs, parameters, strict=True)
    ]
    for wanted, found in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def test_layer_norm_is_the_same_by_any_number_of_threads() -> None:
    x, norm = torch.randn(10_000, 40), LayerNorm(40, DEFAULT_PRODUCTS)
    threads, results = torch.get_num_threads(), []
    try:
        for num_threads in (1, 2, 3):
            torch.set_num_threads(num_threads)
            out = norm(x, Rectifier(dropout=0.5, seed=7))
            results.append((out, *torch.autograd.grad(out.square().sum(), [*norm.parameters()])))
    finally:
        torch.set_num_threads(threads)
    for result in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(result, results[0], strict=True))
