"""Norms between layers, with PyTorch's parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional

from diskhop._native import layer_norm, layer_norm_backward
from diskhop.nn.activation import rectified
from diskhop.nn.kernels.choice import runs_core
from diskhop.nn.matmul.backends import row_blocks
from diskhop.nn.matmul.products import Products
from diskhop.nn.matmul.rectifier import Rectifier


class BatchNorm(nn.BatchNorm1d):
    """PyTorch's BatchNorm1d. A single row, which has no variance, uses the running statistics."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        # Of this process's batch, which the running statistics do not have yet; None: they follow every batch at once.
        self._waiting: list[tuple[Tensor, Tensor]] | None = None
        # Of all batches of a step.
        self._of_step: list[tuple[Tensor, Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        """(rows, dim) -> (rows, dim)."""
        if self.training and len(x) > 1:
            mean, variance = torch.zeros_like(self.get_buffer("running_mean")), torch.ones_like(self.weight)
            # With this momentum they become the batch's.
            out = functional.batch_norm(x, mean, variance, self.weight, self.bias, True, 1.0, self.eps)
            if self._waiting is None:
                self._follow(mean, variance)
            else:
                self._waiting.append((mean, variance))
            return out
        return functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)

    def hold_batches(self, held: bool) -> None:
        """See FollowsBatches."""
        self._waiting = [] if held else None

    def take_batch(self) -> list[tuple[Tensor, Tensor]]:
        """See FollowsBatches."""
        assert self._waiting is not None, "batches are held"
        taken, self._waiting = self._waiting, []
        # For other processes, which may compute elsewhere.
        return [(mean.cpu(), variance.cpu()) for mean, variance in taken]

    def add_piece(self, piece: tuple[Tensor, Tensor]) -> None:
        """See FollowsBatches: a batch of one row, which reads the statistics, must not see those of its step."""
        self._of_step.append(piece)

    def end_step(self) -> None:
        """See FollowsBatches."""
        added, self._of_step = self._of_step, []
        for mean, variance in added:
            self._follow(mean, variance)

    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        assert self.momentum is not None
        with torch.no_grad():
            for name, value in (("running_mean", mean), ("running_var", variance)):
                followed = self.get_buffer(name)
                followed.lerp_(value.to(followed.device), self.momentum)
            self.get_buffer("num_batches_tracked").add_(1)


@runtime_checkable
class FollowsBatches(Protocol):
    """A part of a model that changes with every batch of training, in their order; other processes compute some."""

    def hold_batches(self, held: bool) -> None:
        """Set whether batches change nothing until they are added."""

    def take_batch(self) -> Sequence[Any]:
        """Return what the last batch of this process changes, as pieces: tuples of arrays, which are sent in turn."""

    def add_piece(self, piece: Any) -> None:
        """Add what take_batch() returned, here or in another process, in the order of the batches."""

    def end_step(self) -> None:
        """Hear that all batches of a step were added."""


class LayerNorm(nn.LayerNorm):
    """PyTorch's LayerNorm, into reused memory. It can apply ReLU and dropout while rows are in the caches."""

    def __init__(self, dim: int, products: Products) -> None:
        super().__init__(dim)
        self._products = products

    def forward(self, x: Tensor, rectifier: Rectifier | None = None) -> Tensor:
        """Normalise x, float32 or bfloat16 (rows, dim)."""
        if not runs_core(x):
            normed = functional.layer_norm(x.float(), self.normalized_shape, self.weight, self.bias, self.eps)
            return normed.to(x.dtype) if rectifier is None else rectified(normed.to(x.dtype), rectifier, self._products)
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
