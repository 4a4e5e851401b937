"""ReLU and dropout in place, in one pass, and their gradient."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from diskhop._native import rectify, rectify_backward
from diskhop.nn.kernels.choice import runs_core


class Rectifier(NamedTuple):
    """ReLU followed by dropout.

    dropout: probability that a value becomes 0.
    seed: determines which values do.
    """

    dropout: float
    seed: int

    @classmethod
    def draw(cls, dropout: float) -> Rectifier:
        """Take a seed from torch's generator, which would otherwise draw for every value in one thread."""
        return cls(dropout, int(torch.randint(2**62, ())) if dropout > 0 else 0)

    def rectify(self, x: Tensor, part: int = 0) -> None:
        """Rectify x in place, float32 or bfloat16 (rows, columns), contiguous. part: distinct per part of a tensor."""
        values = x.detach()
        if runs_core(x):
            rectify(values, self.dropout, self.seed + part, torch.get_num_threads())
            return
        values.relu_()
        if self.dropout > 0:
            generator = torch.Generator(x.device).manual_seed(self.seed + part)
            kept = torch.rand(x.shape, generator=generator, device=x.device) >= self.dropout
            values.mul_(kept).mul_(self._scale)

    def gradient(self, left: Tensor, grad: Tensor, out: Tensor) -> None:
        """Write the gradient of rectify()'s input to out. left: its result. All have one shape and dtype."""
        if runs_core(out):
            rectify_backward(left.detach(), grad, self.dropout, out, torch.get_num_threads())
        else:
            torch.mul(grad, left > 0, out=out).mul_(self._scale)

    @property
    def _scale(self) -> float:
        """Factor of the values that are kept."""
        return 1 / (1 - self.dropout) if self.dropout < 1 else 0.0
