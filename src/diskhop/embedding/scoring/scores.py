"""Score functions: how likely an edge is, from embeddings of its source s, relation r and destination t.

Each is `against`(query, t) of a *query* made of s and r, and as well of s and a query made of t and r: so one matrix
product, or matrix of distances, scores many negatives at a side. Gradients are written out: what the forward pass left
is used again (Legend, section 6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from diskhop.errors import ConfigError

Against = Literal["dot", "l1", "l2", "modulus"]
# Those that the core has; see product_gradients().
ProductScore = Literal["dot", "distmult", "complex"]


class Score(Protocol):
    """A score function. asked: embeddings of the end that is not corrupted."""

    @property
    def against(self) -> Against:
        """How queries meet nodes."""

    @property
    def product(self) -> ProductScore | None:
        """The core's name of it, where it has it."""

    @property
    def uses_relations(self) -> bool:
        """Whether relations have parameters."""

    def relation_dim(self, dim: int) -> int:
        """Values of a relation's embedding; raises ConfigError for a dim that nodes cannot have."""

    def draw_relations(self, values: Tensor, scale: float, generator: torch.Generator) -> None:
        """Fill in what relations begin with; scale: of embeddings' standard deviation."""

    def tail_query(self, asked: Tensor, relation: Tensor) -> Tensor:
        """(edges, dim) that destinations are scored against."""

    def tail_query_backward(self, grad: Tensor, asked: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of source and relation, given the query's."""

    def head_query(self, asked: Tensor, relation: Tensor) -> Tensor:
        """(edges, dim) that sources are scored against."""

    def head_query_backward(self, grad: Tensor, asked: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of destination and relation, given the query's."""


class _NormalRelations:
    """Relations that begin as nodes do."""

    def draw_relations(self, values: Tensor, scale: float, generator: torch.Generator) -> None:
        """See Score."""
        values.normal_(0, scale, generator=generator)


class Dot(_NormalRelations):
    """s . t, without relations."""

    against: Against = "dot"
    product: ProductScore = "dot"
    uses_relations = False

    def relation_dim(self, dim: int) -> int:
        """None are used."""
        return 0

    def tail_query(self, asked: Tensor, relation: Tensor) -> Tensor:
        """s, or t"""
        return asked

    def tail_query_backward(self, grad: Tensor, asked: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """As it comes."""
        return grad, relation

    head_query, head_query_backward = tail_query, tail_query_backward


class DistMult(_NormalRelations):
    """The sum of s r t (Yang et al., 2015)."""

    against: Against = "dot"
    product: ProductScore = "distmult"
    uses_relations = True

    def relation_dim(self, dim: int) -> int:
        """As nodes."""
        return dim

    def tail_query(self, asked: Tensor, relation: Tensor) -> Tensor:
        """s r, or t r"""
        return asked * relation

    def tail_query_backward(self, grad: Tensor, asked: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """Of a product."""
        return grad * relation, grad * asked

    head_query, head_query_backward = tail_query, tail_query_backward


class ComplEx(_NormalRelations):
    """The real part of the sum of s r conj(t) (Trouillon et al., 2016); real parts lie before imaginary ones."""

    against: Against = "dot"
    product: ProductScore = "complex"
    uses_relations = True

    def relation_dim(self, dim: int) -> int:
        """As nodes."""
        return _even("complex", dim)

    def tail_query(self, asked: Tensor, relation: Tensor) -> Tensor:
        """s r"""
        return _times(asked, relation)

    def tail_query_backward(self, grad: Tensor, asked: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """grad conj(r), grad conj(s)"""
        return _times_conjugate(grad, relation), _times_conjugate(grad, asked)

    def head_query(self, asked: Tensor, relation: Tensor) -> Tensor:
        """t conj(r)"""
        return _times_conjugate(asked, relation)

    def head_query_backward(self, grad: Tensor, asked: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """grad r, conj(grad) t"""
        return _times(grad, relation), _times_conjugate(asked, grad)


@dataclass(frozen=True, slots=True)
class TransE(_NormalRelations):
    """-|s + r - t| in L1 or L2 (Bordes et al., 2013)."""

    against: Against
    product: None = None
    uses_relations: bool = True

    def relation_dim(self, dim: int) -> int:
        """As nodes."""
        return dim

    def tail_query(self, asked: Tensor, relation: Tensor) -> Tensor:
        """s + r"""
        return asked + relation

    def tail_query_backward(self, grad: Tensor, asked: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """As it comes."""
        return grad, grad

    def head_query(self, asked: Tensor, relation: Tensor) -> Tensor:
        """t - r"""
        return asked - relation

    def head_query_backward(self, grad: Tensor, asked: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """As it comes, and less it."""
        return grad, -grad


class RotatE:
    """-|s r - t|, the sum of moduli, r of modulus 1 (Sun et al., 2019); a relation's embedding is its phases."""

    against: Against = "modulus"
    product = None
    uses_relations = True

    def relation_dim(self, dim: int) -> int:
        """A phase for each complex number."""
        return _even("rotate", dim) // 2

    def draw_relations(self, values: Tensor, scale: float, generator: torch.Generator) -> None:
        """Any phase alike: near 0 all relations would stay close to none, and every node its own best answer."""
        values.uniform_(-math.pi, math.pi, generator=generator)

    def tail_query(self, asked: Tensor, relation: Tensor) -> Tensor:
        """s r"""
        return _times(asked, _on_circle(relation))

    def tail_query_backward(self, grad: Tensor, asked: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """grad conj(r); of a phase what turns the query further: grad . (i s r)"""
        turn = _on_circle(relation)
        return _times_conjugate(grad, turn), _turning(grad, _times(asked, turn))

    def head_query(self, asked: Tensor, relation: Tensor) -> Tensor:
        """t conj(r): as far from s as s r from t"""
        return _times_conjugate(asked, _on_circle(relation))

    def head_query_backward(self, grad: Tensor, asked: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """grad r; of a phase what turns the query back"""
        turn = _on_circle(relation)
        return _times(grad, turn), -_turning(grad, _times_conjugate(asked, turn))


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
        raise ConfigError(f"dim must be even for model '{model}', whose values are complex numbers, got {dim}")
    return dim


def _times(x: Tensor, y: Tensor) -> Tensor:
    """Products of complex numbers."""
    real, imaginary = x.chunk(2, dim=1)
    other_real, other_imaginary = y.chunk(2, dim=1)
    out = torch.empty_like(x)
    half = x.shape[1] // 2
    torch.mul(real, other_real, out=out[:, :half]).addcmul_(imaginary, other_imaginary, value=-1)
    torch.mul(real, other_imaginary, out=out[:, half:]).addcmul_(imaginary, other_real)
    return out


def _times_conjugate(x: Tensor, y: Tensor) -> Tensor:
    """x conj(y)"""
    real, imaginary = x.chunk(2, dim=1)
    other_real, other_imaginary = y.chunk(2, dim=1)
    out = torch.empty_like(x)
    half = x.shape[1] // 2
    torch.mul(real, other_real, out=out[:, :half]).addcmul_(imaginary, other_imaginary)
    torch.mul(imaginary, other_real, out=out[:, half:]).addcmul_(real, other_imaginary, value=-1)
    return out


def _on_circle(phases: Tensor) -> Tensor:
    return torch.cat([phases.cos(), phases.sin()], dim=1)


def _turning(grad: Tensor, query: Tensor) -> Tensor:
    """grad . (i query), for each complex number."""
    real, imaginary = query.chunk(2, dim=1)
    of_real, of_imaginary = grad.chunk(2, dim=1)
    return of_imaginary * real - of_real * imaginary
