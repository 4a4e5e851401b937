"""dropout(relu(x)) in the place of x, in one pass, and its gradient."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from diskhop._native import rectify, rectify_backward


class Rectifier(NamedTuple):
    """dropout: the probability that a value becomes 0. seed: of the draws, all of them by one pass over the values."""

    dropout: float
    seed: int

    @classmethod
    def draw(cls, dropout: float) -> Rectifier:
        """With a seed from torch's generator, which would else draw for every value, in one thread."""
        return cls(dropout, int(torch.randint(2**62, ())) if dropout > 0 else 0)

    def rectify(self, x: Tensor, part: int = 0) -> None:
        """x: float32 or bfloat16 (rows, columns), rows together. part: distinct for each part of one tensor."""
        rectify(x.detach(), self.dropout, self.seed + part, torch.get_num_threads())

    def gradient(self, left: Tensor, grad: Tensor, out: Tensor) -> None:
        """out = the gradient of what rectify() was given. left: what it left. All of one shape and dtype."""
        rectify_backward(left.detach(), grad, self.dropout, out, torch.get_num_threads())
