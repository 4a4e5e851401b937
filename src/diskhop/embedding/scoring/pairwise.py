"""Similarities between queries and nodes (dot product, distances), with their gradients.

A *kind* of similarity scores all pairs of queries (queries, dim) and nodes (nodes, dim) as a matrix, for negatives. It
also scores the pairs of equal rows, for positives.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch import Tensor

from diskhop._native import distance_scores, distance_scores_backward
from diskhop.embedding.scoring.scores import Against

# Squared distances are differences of rounded sums, which may be negative or 0: they are clamped to this.
_LEAST_SQUARE = 1e-12


class Similarity(Protocol):
    """A similarity of queries and nodes; all tensors are float32."""

    def matrix(self, queries: Tensor, nodes: Tensor, out: Tensor) -> None:
        """Write the scores of all pairs to out (queries, nodes)."""


class Kind(Similarity, Protocol):
    """A similarity with gradients.

    keeps_scores: whether matrix_backward() needs the scores of the forward pass.
    """

    keeps_scores: bool

    def matrix_backward(
        self, grads: Tensor, scores: Tensor, queries: Tensor, nodes: Tensor, query_grads: Tensor, node_grads: Tensor
    ) -> None:
        """Fill query_grads and node_grads from the gradients of the scores. grads may be overwritten."""

    def pairs(self, queries: Tensor, nodes: Tensor) -> Tensor:
        """Return the score of each row's pair, (rows)."""

    def pairs_backward(self, grads: Tensor, scores: Tensor, queries: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of queries and nodes from those of their pairs' scores."""


class Product:
    """q . n"""

    keeps_scores = False

    def matrix(self, queries: Tensor, nodes: Tensor, out: Tensor) -> None:
        """See Kind."""
        torch.mm(queries, nodes.t(), out=out)

    def matrix_backward(
        self, grads: Tensor, scores: Tensor, queries: Tensor, nodes: Tensor, query_grads: Tensor, node_grads: Tensor
    ) -> None:
        """See Kind."""
        torch.mm(grads, nodes, out=query_grads)
        torch.mm(grads.t(), queries, out=node_grads)

    def pairs(self, queries: Tensor, nodes: Tensor) -> Tensor:
        """See Kind."""
        return (queries * nodes).sum(1)

    def pairs_backward(self, grads: Tensor, scores: Tensor, queries: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """See Kind."""
        return nodes * grads[:, None], queries * grads[:, None]


class Euclidean:
    """-|q - n|, computed with a matrix product: |q|^2 - 2 q . n + |n|^2."""

    keeps_scores = True

    def matrix(self, queries: Tensor, nodes: Tensor, out: Tensor) -> None:
        """See Kind."""
        squares = queries.square().sum(1, keepdim=True)
        torch.addmm(squares, queries, nodes.t(), alpha=-2, out=out)
        out.add_(nodes.square().sum(1)).clamp_(min=_LEAST_SQUARE).sqrt_().neg_()

    def matrix_backward(
        self, grads: Tensor, scores: Tensor, queries: Tensor, nodes: Tensor, query_grads: Tensor, node_grads: Tensor
    ) -> None:
        """See Kind."""
        grads.div_(scores)  # d(distance) = d(squared distance) / (2 distance)
        torch.mm(grads, nodes, out=query_grads)
        torch.mm(grads.t(), queries, out=node_grads)
        query_grads.neg_().addcmul_(grads.sum(1, keepdim=True), queries)
        node_grads.neg_().addcmul_(grads.sum(0)[:, None], nodes)

    def pairs(self, queries: Tensor, nodes: Tensor) -> Tensor:
        """See Kind."""
        return (queries - nodes).square().sum(1).clamp(min=_LEAST_SQUARE).sqrt().neg()

    def pairs_backward(self, grads: Tensor, scores: Tensor, queries: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """See Kind."""
        query_grads = (queries - nodes) * (grads / scores)[:, None]
        return query_grads, -query_grads


class Distances:
    """Negative distances that are no matrix products, computed by the native core.

    name: 'l1' sums absolute differences; 'modulus' sums moduli of complex differences.
    """

    keeps_scores = False

    def __init__(self, name: Literal["l1", "modulus"]) -> None:
        self._name = name

    def matrix(self, queries: Tensor, nodes: Tensor, out: Tensor) -> None:
        """See Kind."""
        distance_scores(queries, nodes, self._name, out, torch.get_num_threads())

    def matrix_backward(
        self, grads: Tensor, scores: Tensor, queries: Tensor, nodes: Tensor, query_grads: Tensor, node_grads: Tensor
    ) -> None:
        """See Kind."""
        distance_scores_backward(queries, nodes, self._name, grads, query_grads, node_grads, torch.get_num_threads())

    def pairs(self, queries: Tensor, nodes: Tensor) -> Tensor:
        """See Kind."""
        differences = queries - nodes
        distances = differences.abs() if self._name == "l1" else _moduli(differences)
        return distances.sum(1).neg()

    def pairs_backward(self, grads: Tensor, scores: Tensor, queries: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """See Kind."""
        differences = queries - nodes
        if self._name == "l1":
            directions = differences.sign()
        else:
            moduli = _moduli(differences)
            directions = differences / torch.cat([moduli, moduli], 1).clamp(min=_LEAST_SQUARE)
        node_grads = directions * grads[:, None]
        return -node_grads, node_grads


KINDS: dict[Against, Kind] = {
    "dot": Product(),
    "l2": Euclidean(),
    "l1": Distances("l1"),
    "modulus": Distances("modulus"),
}


def _moduli(numbers: Tensor) -> Tensor:
    real, imaginary = numbers.chunk(2, dim=1)
    return (real.square() + imaginary.square()).sqrt()
