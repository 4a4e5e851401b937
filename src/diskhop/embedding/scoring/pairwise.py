"""How queries meet nodes: one matrix for a chunk's negatives, and its gradients.

A *kind* scores (queries, dim) against (nodes, dim) each with each, and pairs of rows of both.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch import Tensor

from diskhop._native import distance_scores, distance_scores_backward
from diskhop.embedding.scoring.scores import Against

# Squares of distances come from differences of rounded sums, and below this are none.
_LEAST_SQUARE = 1e-12


class Kind(Protocol):
    """See above; matrices are float32, results go where they are told."""

    keeps_scores: bool  # gradients need a copy of the scores

    def matrix(self, queries: Tensor, nodes: Tensor, out: Tensor) -> None:
        """out (queries, nodes) = the scores."""

    def matrix_backward(
        self, grads: Tensor, scores: Tensor, queries: Tensor, nodes: Tensor, of_queries: Tensor, of_nodes: Tensor
    ) -> None:
        """Fill the gradients of queries and nodes, given those of the scores; grads may be written over."""

    def pairs(self, queries: Tensor, nodes: Tensor) -> Tensor:
        """(rows): the score of each row's pair."""

    def pairs_backward(self, grads: Tensor, scores: Tensor, queries: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of queries and nodes, given those of their pairs' scores."""


class Product:
    """q . n"""

    keeps_scores = False

    def matrix(self, queries: Tensor, nodes: Tensor, out: Tensor) -> None:
        """See Kind."""
        torch.mm(queries, nodes.t(), out=out)

    def matrix_backward(
        self, grads: Tensor, scores: Tensor, queries: Tensor, nodes: Tensor, of_queries: Tensor, of_nodes: Tensor
    ) -> None:
        """See Kind."""
        torch.mm(grads, nodes, out=of_queries)
        torch.mm(grads.t(), queries, out=of_nodes)

    def pairs(self, queries: Tensor, nodes: Tensor) -> Tensor:
        """See Kind."""
        return (queries * nodes).sum(1)

    def pairs_backward(self, grads: Tensor, scores: Tensor, queries: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """See Kind."""
        return nodes * grads[:, None], queries * grads[:, None]


class Euclidean:
    """-|q - n|, by way of a matrix product."""

    keeps_scores = True

    def matrix(self, queries: Tensor, nodes: Tensor, out: Tensor) -> None:
        """See Kind."""
        squares = queries.square().sum(1, keepdim=True)
        torch.addmm(squares, queries, nodes.t(), alpha=-2, out=out)
        out.add_(nodes.square().sum(1)).clamp_(min=_LEAST_SQUARE).sqrt_().neg_()

    def matrix_backward(
        self, grads: Tensor, scores: Tensor, queries: Tensor, nodes: Tensor, of_queries: Tensor, of_nodes: Tensor
    ) -> None:
        """See Kind."""
        grads.div_(scores)  # of a distance, by the distance
        torch.mm(grads, nodes, out=of_queries)
        torch.mm(grads.t(), queries, out=of_nodes)
        of_queries.neg_().addcmul_(grads.sum(1, keepdim=True), queries)
        of_nodes.neg_().addcmul_(grads.sum(0)[:, None], nodes)

    def pairs(self, queries: Tensor, nodes: Tensor) -> Tensor:
        """See Kind."""
        return (queries - nodes).square().sum(1).clamp(min=_LEAST_SQUARE).sqrt().neg()

    def pairs_backward(self, grads: Tensor, scores: Tensor, queries: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """See Kind."""
        of_queries = (queries - nodes) * (grads / scores)[:, None]
        return of_queries, -of_queries


class Distances:
    """Minus sums of distances of values, which are no matrix products: the core's."""

    keeps_scores = False

    def __init__(self, name: Literal["l1", "modulus"]) -> None:
        self._name = name

    def matrix(self, queries: Tensor, nodes: Tensor, out: Tensor) -> None:
        """See Kind."""
        distance_scores(queries, nodes, self._name, out, torch.get_num_threads())

    def matrix_backward(
        self, grads: Tensor, scores: Tensor, queries: Tensor, nodes: Tensor, of_queries: Tensor, of_nodes: Tensor
    ) -> None:
        """See Kind."""
        distance_scores_backward(queries, nodes, self._name, grads, of_queries, of_nodes, torch.get_num_threads())

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
        of_nodes = directions * grads[:, None]
        return -of_nodes, of_nodes


KINDS: dict[Against, Kind] = {
    "dot": Product(),
    "l2": Euclidean(),
    "l1": Distances("l1"),
    "modulus": Distances("modulus"),
}


def _moduli(numbers: Tensor) -> Tensor:
    real, imaginary = numbers.chunk(2, dim=1)
    return (real.square() + imaginary.square()).sqrt()
