"""ReLU and dropout in place, in one pass, and their gradient."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from diskhop._native import rectify, rectify_backward


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
        rectify(x.detach(), self.dropout, self.seed + part, torch.get_num_threads())

    def gradient(self, left: Tensor, grad: Tensor, out: Tensor) -> None:
        """Write the gradient of rectify()'s input to out. left: its result. All have one shape and dtype."""
        rectify_backward(left.detach(), grad, self.dropout, out, torch.get_num_threads())
