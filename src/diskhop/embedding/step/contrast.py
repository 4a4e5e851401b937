"""A chunk's edges against its negatives at one of their sides: losses, and gradients of all that was scored."""

from __future__ import annotations

import threading
from typing import NamedTuple

import torch
from torch import Tensor

from diskhop._native import mask_scores
from diskhop.embedding.scoring.losses import LOSSES
from diskhop.embedding.scoring.pairwise import KINDS
from diskhop.embedding.scoring.scores import Against

NO_NODES = torch.empty(0, dtype=torch.int64)


class LeftOut(NamedTuple):
    """Negatives that do not count for an edge, int64: the node it wants, and others that are known to be right.

    wanted (C), negatives (K): nodes, by any numbers. known: of edge i, ascending, from begins[i] to ends[i].
    """

    wanted: Tensor
    negatives: Tensor
    known: Tensor = NO_NODES
    begins: Tensor = NO_NODES
    ends: Tensor = NO_NODES


class Chunk(NamedTuple):
    """queries (C, dim); wanted (C, dim): the nodes that go with them; negatives (K, dim), and which are left out.

    of_wanted (C, dim): gradients, added to. of_negatives (K, dim): filled.
    """

    queries: Tensor
    wanted: Tensor
    negatives: Tensor
    left_out: LeftOut
    of_wanted: Tensor
    of_negatives: Tensor


class Contrast:
    """Of scores against nodes, by a loss; by any number of threads at once. chunk_size, num_negatives: the most."""

    def __init__(self, against: Against, loss: str, margin: float, chunk_size: int, num_negatives: int) -> None:
        self._kind, self._loss, self._margin = KINDS[against], LOSSES[loss], margin
        self._shape = chunk_size, num_negatives
        self._scratch = threading.local()

    def run(self, chunk: Chunk) -> tuple[float, Tensor]:
        """The sum of the losses, and the queries' gradients."""
        kind, queries = self._kind, chunk.queries
        scores, kept_scores = self._memory(len(queries))
        positives = kind.pairs(queries, chunk.wanted)
        kind.matrix(queries, chunk.negatives, scores)
        if kind.keeps_scores:
            kept_scores.copy_(scores)
        mask_scores(chunk.left_out, scores)
        found = self._loss(scores, positives, self._margin)
        of_queries = torch.empty_like(queries)
        kind.matrix_backward(scores, kept_scores, queries, chunk.negatives, of_queries, chunk.of_negatives)
        by_pairs, of_wanted = kind.pairs_backward(found.of_positives, positives, queries, chunk.wanted)
        of_queries += by_pairs
        chunk.of_wanted.add_(of_wanted)
        return float(found.losses.sum()), of_queries

    def _memory(self, num_queries: int) -> tuple[Tensor, Tensor]:
        """For scores and a copy of them: the thread's own, made once."""
        if not hasattr(self._scratch, "scores"):
            self._scratch.scores = torch.empty(self._shape)
            self._scratch.kept = torch.empty(self._shape) if self._kind.keeps_scores else self._scratch.scores
        return self._scratch.scores[:num_queries], self._scratch.kept[:num_queries]
