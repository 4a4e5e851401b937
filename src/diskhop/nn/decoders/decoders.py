"""The registry of decoders. A new decoder is one class and one entry of `DECODERS`.

A decoder scores pairs, of two rows of embeddings each, or every pair of some nodes and some candidates. Scores are
logits: the higher the likelier an edge. All decoders are symmetric: the ends of a pair may be exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from diskhop.config.options import require_known
from diskhop.nn.matmul.products import DEFAULT_PRODUCTS, Linear, Products
from diskhop.runtime.blocks import row_ranges

# Pairs whose products of embeddings are in memory at once.
_PAIRS_AT_ONCE = 1 << 14
# A cosine is at most 1, so that its logit would never be certain.
_COSINE_SCALE = 10.0


class Dot(nn.Module):
    """The dot product of two embeddings."""

    def forward(self, sources: Tensor, destinations: Tensor) -> Tensor:
        """Score pairs: two of (pairs, dim) -> (pairs)."""
        return (sources * destinations).sum(dim=1)

    def matrix(self, nodes: Tensor, candidates: Tensor) -> Tensor:
        """Score every pair of (nodes, dim) and (candidates, dim): (nodes, candidates)."""
        return nodes @ candidates.t()


class Cosine(nn.Module):
    """The cosine of two embeddings, times a scale that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(math.log(_COSINE_SCALE)))

    def forward(self, sources: Tensor, destinations: Tensor) -> Tensor:
        """Score pairs; see Dot."""
        cosines = (functional.normalize(sources) * functional.normalize(destinations)).sum(dim=1)
        return cosines * self.log_scale.exp()

    def matrix(self, nodes: Tensor, candidates: Tensor) -> Tensor:
        """Score every pair; see Dot."""
        return functional.normalize(nodes) @ functional.normalize(candidates).t() * self.log_scale.exp()


class DistMult(nn.Module):
    """The dot product of two embeddings with a weight per column (Yang et al., 2015, of one relation)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, sources: Tensor, destinations: Tensor) -> Tensor:
        """Score pairs; see Dot."""
        return (sources * self.weight * destinations).sum(dim=1)

    def matrix(self, nodes: Tensor, candidates: Tensor) -> Tensor:
        """Score every pair; see Dot."""
        return (nodes * self.weight) @ candidates.t()


class MlpDecoder(nn.Module):
    """A perceptron of the product of two embeddings, column by column, with one hidden layer of their width."""

    def __init__(self, dim: int, products: Products) -> None:
        super().__init__()
        self.hidden = Linear(dim, dim, products)
        self.out = Linear(dim, 1, products)

    def forward(self, sources: Tensor, destinations: Tensor) -> Tensor:
        """Score pairs; see Dot."""
        score: Tensor = self.out(functional.relu(self.hidden(sources * destinations).float()))
        return score[:, 0].float()

    def matrix(self, nodes: Tensor, candidates: Tensor) -> Tensor:
        """Score every pair, some nodes at a time; see Dot."""
        nodes_at_once = max(1, _PAIRS_AT_ONCE // max(1, len(candidates)))
        rows = []
        for start, stop in row_ranges(len(nodes), nodes_at_once):
            some = nodes[start:stop]
            pairs = some.repeat_interleave(len(candidates), dim=0), candidates.repeat(len(some), 1)
            rows.append(self(*pairs).view(len(some), len(candidates)))
        return torch.cat(rows)


Decoder = Dot | Cosine | DistMult | MlpDecoder

DECODERS: dict[str, Callable[[int, Products], Decoder]] = {
    "dot": lambda dim, products: Dot(),
    "cosine": lambda dim, products: Cosine(),
    "distmult": lambda dim, products: DistMult(dim),
    "mlp": MlpDecoder,
}


def make_decoder(name: str, dim: int, products: Products = DEFAULT_PRODUCTS) -> Decoder:
    """Make a decoder of embeddings of this width. Raises ConfigError for an unknown one."""
    require_known("decoder", name, DECODERS)
    return DECODERS[name](dim, products)
