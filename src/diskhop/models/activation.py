"""What stands between two layers: an activation, then dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from diskhop import _native
from diskhop.models.products import Products

# (x, probability of dropout, products) -> the same shape; x may be overwritten.
Activation = Callable[[Tensor, float, Products], Tensor]


def relu(x: Tensor, dropout: float, products: Products) -> Tensor:
    """dropout(relu(x)) in the place of x, float32 or bfloat16 (rows, columns).

    One pass, and a seed for all its draws from torch's generator, which would else draw for every value, in one thread.
    """
    seed = int(torch.randint(2**62, ())) if dropout > 0 else 0
    out: Tensor = _Relu.apply(x.contiguous(), dropout, seed, products)  # type: ignore[no-untyped-call]
    return out


def elu(x: Tensor, dropout: float, _products: Products) -> Tensor:
    """dropout(elu(x))."""
    return functional.dropout(functional.elu_(x), dropout)


class _Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dropout: float, seed: int, products: Products) -> Tensor:
        _native.rectify(x.detach(), dropout, seed, torch.get_num_threads())
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        ctx.dropout, ctx.products = dropout, products
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (left,) = ctx.saved_tensors
        of_x: Tensor = ctx.products.empty(*left.shape, left.dtype)
        _native.rectify_backward(left.detach(), grad.contiguous(), ctx.dropout, of_x, torch.get_num_threads())
        return of_x, None, None, None
