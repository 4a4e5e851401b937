"""Norms between layers, with PyTorch's parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from diskhop._native import layer_norm, layer_norm_backward
from diskhop.nn.matmul.backends import row_blocks
from diskhop.nn.matmul.products import Products
from diskhop.nn.matmul.rectifier import Rectifier


class BatchNorm(nn.BatchNorm1d):
    """PyTorch's BatchNorm1d. A single row, which has no variance, uses the running statistics."""

    def forward(self, x: Tensor) -> Tensor:
        """(rows, dim) -> (rows, dim)."""
        if len(x) > 1:
            return super().forward(x)
        return functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


class LayerNorm(nn.LayerNorm):
    """PyTorch's LayerNorm, into reused memory. It can apply ReLU and dropout while rows are in the caches."""

    def __init__(self, dim: int, products: Products) -> None:
        super().__init__(dim)
        self._products = products

    def forward(self, x: Tensor, rectifier: Rectifier | None = None) -> Tensor:
        """Normalise x, float32 or bfloat16 (rows, dim)."""
        out: Tensor = _LayerNorm.apply(  # type: ignore[no-untyped-call]
            x.contiguous(), self.weight, self.bias, self.eps, rectifier, self._products
        )
        return out


# (dim, products) -> a module that maps (rows, dim) to the same shape.
NORMS: dict[str, Callable[[int, Products], nn.Module]] = {
    "none": lambda dim, products: nn.Identity(),
    "batch": lambda dim, products: BatchNorm(dim),
    "layer": LayerNorm,
}


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        epsilon: float,
        rectifier: Rectifier | None,
        products: Products,
    ) -> Tensor:
        out, moments = products.empty(len(x), x.shape[1], x.dtype), torch.empty(len(x), 2)
        threads, values, weights, biases = torch.get_num_threads(), x.detach(), weight.detach(), bias.detach()
        for rows in row_blocks(len(x)):
            layer_norm(values[rows], weights, biases, epsilon, moments[rows], out[rows], threads)
            if rectifier is not None:
                rectifier.rectify(out[rows], part=rows.start)
        ctx.save_for_backward(x, weight, moments, None if rectifier is None else out)
        ctx.rectifier, ctx.products = rectifier, products
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, moments, left = ctx.saved_tensors
        grad = grad.contiguous()
        of_x = ctx.products.empty(len(x), x.shape[1], x.dtype)
        of_weight, of_bias = torch.zeros_like(weight), torch.zeros_like(weight)
        threads, values, weights = torch.get_num_threads(), x.detach(), weight.detach()
        for rows in row_blocks(len(x)):
            grads = grad[rows]
            if ctx.rectifier is not None:
                # The result's own memory serves as scratch.
                ctx.rectifier.gradient(left[rows], grads, of_x[rows])
                grads = of_x[rows]
            layer_norm_backward(values[rows], moments[rows], weights, grads, of_x[rows], of_weight, of_bias, threads)
        return of_x, of_weight, of_bias, None, None, None
