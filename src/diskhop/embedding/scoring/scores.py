"""Score functions: how likely an edge is, from embeddings of its source s, relation r and destination t.

Each combines s and r to a *query* and compares it with t by a dot product or distance (`against`). Equally, it combines
t and r and compares with s. One matrix product, or matrix of distances, thus scores a query against many negatives.
Gradients are written out and reuse results of the forward pass (Legend, section 6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from diskhop.errors import ConfigError

Against = Literal["dot", "l1", "l2", "modulus"]
# Scores with gradients in the native core; see product_gradients().
ProductScore = Literal["dot", "distmult", "complex"]


class Score(Protocol):
    """A score function. Its queries combine the given end of an edge, which is not corrupted, with the relation.

    given: embeddings of the given end, float32 (edges, dim).
    relation: embeddings of the relation, float32 (edges, relation_dim); empty for scores without relations.
    grad: gradients of the query, float32 (edges, dim).
    """

    @property
    def against(self) -> Against:
        """Similarity between queries and nodes: a key of pairwise.KINDS."""

    @property
    def product(self) -> ProductScore | None:
        """Name of the score in the native core, or None if the core lacks it."""

    @property
    def uses_relations(self) -> bool:
        """Whether relations have parameters."""

    def relation_dim(self, dim: int) -> int:
        """Return the values of a relation's embedding. Raises ConfigError for a dim that the score does not support."""

    def draw_relations(self, values: Tensor, scale: float, generator: torch.Generator) -> None:
        """Initialise relations at random. scale: standard deviation of the embeddings."""

    def tail_query(self, given: Tensor, relation: Tensor) -> Tensor:
        """Return queries (edges, dim) for destinations, from sources."""

    def tail_query_backward(self, grad: Tensor, given: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of sources and relations from those of the queries."""

    def head_query(self, given: Tensor, relation: Tensor) -> Tensor:
        """Return queries (edges, dim) for sources, from destinations."""

    def head_query_backward(self, grad: Tensor, given: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of destinations and relations from those of the queries."""


class _NormalRelations:
    """Relations that are initialised like nodes: by a normal distribution."""

    def draw_relations(self, values: Tensor, scale: float, generator: torch.Generator) -> None:
        """See Score."""
        values.normal_(0, scale, generator=generator)


class Dot(_NormalRelations):
    """s . t, without relations."""

    against: Against = "dot"
    product: ProductScore = "dot"
    uses_relations = False

    def relation_dim(self, dim: int) -> int:
        """Return 0: there are no relations."""
        return 0

    def tail_query(self, given: Tensor, relation: Tensor) -> Tensor:
        """s, or t"""
        return given

    def tail_query_backward(self, grad: Tensor, given: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients unchanged."""
        return grad, relation

    head_query, head_query_backward = tail_query, tail_query_backward


class DistMult(_NormalRelations):
    """The sum of s r t (Yang et al., 2015)."""

    against: Against = "dot"
    product: ProductScore = "distmult"
    uses_relations = True

    def relation_dim(self, dim: int) -> int:
        """Return dim: relations have the size of nodes."""
        return dim

    def tail_query(self, given: Tensor, relation: Tensor) -> Tensor:
        """s r, or t r"""
        return given * relation

    def tail_query_backward(self, grad: Tensor, given: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """grad r, grad s"""
        return grad * relation, grad * given

    head_query, head_query_backward = tail_query, tail_query_backward


class ComplEx(_NormalRelations):
    """The real part of the sum of s r conj(t) (Trouillon et al., 2016). Real parts come before imaginary ones."""

    against: Against = "dot"
    product: ProductScore = "complex"
    uses_relations = True

    def relation_dim(self, dim: int) -> int:
        """Return dim: relations have the size of nodes. Raises ConfigError for an odd dim."""
        return _even("complex", dim)

    def tail_query(self, given: Tensor, relation: Tensor) -> Tensor:
        """s r"""
        return _times(given, relation)

    def tail_query_backward(self, grad: Tensor, given: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """grad conj(r), grad conj(s)"""
        return _times_conjugate(grad, relation), _times_conjugate(grad, given)

    def head_query(self, given: Tensor, relation: Tensor) -> Tensor:
        """t conj(r)"""
        return _times_conjugate(given, relation)

    def head_query_backward(self, grad: Tensor, given: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """grad r, conj(grad) t"""
        return _times(grad, relation), _times_conjugate(given, grad)


@dataclass(frozen=True, slots=True)
class TransE(_NormalRelations):
    """-|s + r - t| in L1 or L2 (Bordes et al., 2013)."""

    against: Against
    product: None = None
    uses_relations: bool = True

    def relation_dim(self, dim: int) -> int:
        """Return dim: relations have the size of nodes."""
        return dim

    def tail_query(self, given: Tensor, relation: Tensor) -> Tensor:
        """s + r"""
        return given + relation

    def tail_query_backward(self, grad: Tensor, given: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """grad, grad"""
        return grad, grad

    def head_query(self, given: Tensor, relation: Tensor) -> Tensor:
        """t - r"""
        return given - relation

    def head_query_backward(self, grad: Tensor, given: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """grad, -grad"""
        return grad, -grad


class RotatE:
    """-|s r - t|, a sum of moduli, with |r| = 1 (Sun et al., 2019). A relation's embedding is its phases."""

    against: Against = "modulus"
    product = None
    uses_relations = True

    def relation_dim(self, dim: int) -> int:
        """Return dim / 2: one phase per complex number. Raises ConfigError for an odd dim."""
        return _even("rotate", dim) // 2

    def draw_relations(self, values: Tensor, scale: float, generator: torch.Generator) -> None:
        """Draw phases uniformly: near 0, relations would stay close to the identity and rank each node first itself."""
        values.uniform_(-math.pi, math.pi, generator=generator)

    def tail_query(self, given: Tensor, relation: Tensor) -> Tensor:
        """s r"""
        return _times(given, _on_circle(relation))

    def tail_query_backward(self, grad: Tensor, given: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """grad conj(r); for phases, grad . (i s r), along the rotation of the query"""
        rotation = _on_circle(relation)
        return _times_conjugate(grad, rotation), _phase_grad(grad, _times(given, rotation))

    def head_query(self, given: Tensor, relation: Tensor) -> Tensor:
        """t conj(r), since |s r - t| = |s - t conj(r)|"""
        return _times_conjugate(given, _on_circle(relation))

    def head_query_backward(self, grad: Tensor, given: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """grad r; for phases, -grad . (i t conj(r)), against the rotation of the query"""
        rotation = _on_circle(relation)
        return _times(grad, rotation), -_phase_grad(grad, _times_conjugate(given, rotation))


SCORES: dict[str, Score] = {
    "dot": Dot(),
    "distmult": DistMult(),
    "complex": ComplEx(),
    "transe": TransE("l2"),
    "transe-l1": TransE("l1"),
    "rotate": RotatE(),
}


def _even(model: str, dim: int) -> int:
    if dim % 2:
        raise ConfigError(f"dim must be even for model '{model}' (complex numbers), got {dim}; use --dim {dim + 1}")
    return dim


def _times(x: Tensor, y: Tensor) -> Tensor:
    """x y, for complex numbers"""
    real, imaginary = x.chunk(2, dim=1)
    other_real, other_imaginary = y.chunk(2, dim=1)
    out = torch.empty_like(x)
    half = x.shape[1] // 2
    torch.mul(real, other_real, out=out[:, :half]).addcmul_(imaginary, other_imaginary, value=-1)
    torch.mul(real, other_imaginary, out=out[:, half:]).addcmul_(imaginary, other_real)
    return out


def _times_conjugate(x: Tensor, y: Tensor) -> Tensor:
    """x conj(y), for complex numbers"""
    real, imaginary = x.chunk(2, dim=1)
    other_real, other_imaginary = y.chunk(2, dim=1)
    out = torch.empty_like(x)
    half = x.shape[1] // 2
    torch.mul(real, other_real, out=out[:, :half]).addcmul_(imaginary, other_imaginary)
    torch.mul(imaginary, other_real, out=out[:, half:]).addcmul_(real, other_imaginary, value=-1)
    return out


def _on_circle(phases: Tensor) -> Tensor:
    return torch.cat([phases.cos(), phases.sin()], dim=1)


def _phase_grad(grad: Tensor, query: Tensor) -> Tensor:
    """grad . (i query), for each complex number"""
    real, imaginary = query.chunk(2, dim=1)
    real_grad, imaginary_grad = grad.chunk(2, dim=1)
    return imaginary_grad * real - real_grad * imaginary
