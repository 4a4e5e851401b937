"""Activations between layers, followed by dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from diskhop.nn.matmul.products import Products
from diskhop.nn.matmul.rectifier import Rectifier

# (x, probability of dropout, products) -> the same shape; x may be overwritten.
Activation = Callable[[Tensor, float, Products], Tensor]


def relu(x: Tensor, dropout: float, products: Products) -> Tensor:
    """Compute dropout(relu(x)) in place; x: float32 or bfloat16 (rows, columns)."""
    return rectified(x, Rectifier.draw(dropout), products)


def rectified(x: Tensor, rectifier: Rectifier, products: Products) -> Tensor:
    """Rectify x, float32 or bfloat16 (rows, columns), in place."""
    out: Tensor = _Relu.apply(x.contiguous(), rectifier, products)  # type: ignore[no-untyped-call]
    return out


def elu(x: Tensor, dropout: float, _products: Products) -> Tensor:
    """Compute dropout(elu(x)) in place."""
    return functional.dropout(functional.elu_(x), dropout)


def dropout_only(x: Tensor, dropout: float, _products: Products) -> Tensor:
    """Compute dropout(x)."""
    return functional.dropout(x, dropout) if dropout > 0 else x


class _Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rectifier: Rectifier, products: Products) -> Tensor:
        rectifier.rectify(x)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        ctx.rectifier, ctx.products = rectifier, products
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (left,) = ctx.saved_tensors
        of_x: Tensor = ctx.products.empty(*left.shape, left.dtype, left.device)
        ctx.rectifier.gradient(left, grad.contiguous(), of_x)
        return of_x, None, None
