"""Losses and gradients of a chunk of edges against its negatives, for one corrupted side."""

from __future__ import annotations

import threading
from typing import NamedTuple

import torch
from torch import Tensor

from diskhop._native import mask_scores
from diskhop.embedding.scoring.losses import LOSSES
from diskhop.embedding.scoring.pairwise import KINDS
from diskhop.embedding.scoring.scores import Against
from diskhop.nn.kernels.choice import runs_core

NO_NODES = torch.empty(0, dtype=torch.int64)


class LeftOut(NamedTuple):
    """Negatives that are excluded for an edge: its answer and other known answers; all int64.

    answers: the other end of each edge, (C); nodes may have any numbers.
    negatives: the chunk's negatives, (K), by the same numbers.
    known: other known answers; for edge i ascending, from begins[i] to ends[i].
    begins: first known answer of each edge, (C), or empty.
    ends: end of the known answers of each edge, (C), or empty.
    """

    answers: Tensor
    negatives: Tensor
    known: Tensor = NO_NODES
    begins: Tensor = NO_NODES
    ends: Tensor = NO_NODES


def is_left_out(left_out: LeftOut) -> Tensor:
    """Return which negatives are excluded for which edge, bool (C, K), by tensor operations."""
    negatives = left_out.negatives
    found = left_out.answers[:, None] == negatives
    if not len(left_out.begins) or not len(left_out.known):
        return found
    # Every negative is looked up among the known answers of every edge at once, by bisection.
    low = left_out.begins[:, None].repeat(1, len(negatives))
    high = left_out.ends[:, None].repeat(1, len(negatives))
    last = len(left_out.known) - 1
    for _ in range(int((left_out.ends - left_out.begins).max()).bit_length()):
        middle = (low + high) // 2
        is_before = (low < high) & (left_out.known[middle.clamp(max=last)] < negatives)
        low = torch.where(is_before, middle + 1, low)
        high = torch.where(is_before, high, middle)
    return found | ((low < left_out.ends[:, None]) & (left_out.known[low.clamp(max=last)] == negatives))


class Chunk(NamedTuple):
    """A chunk of C edges with K negatives.

    queries: (C, dim).
    answers: embeddings of the other end of each edge, (C, dim).
    negatives: embeddings of the negatives, (K, dim).
    left_out: negatives that are excluded.
    answer_grads: gradients of answers, (C, dim); added to.
    negative_grads: gradients of negatives, (K, dim); filled.
    """

    queries: Tensor
    answers: Tensor
    negatives: Tensor
    left_out: LeftOut
    answer_grads: Tensor
    negative_grads: Tensor


class Contrast:
    """Scores queries against answers and negatives, and computes a loss. Thread-safe: each thread has its own memory.

    against: similarity between queries and nodes.
    loss: name in LOSSES.
    margin: margin of the loss, if it has one.
    chunk_size: maximum number of edges per chunk.
    num_negatives: number of negatives per chunk.
    """

    def __init__(self, against: Against, loss: str, margin: float, chunk_size: int, num_negatives: int) -> None:
        self._kind, self._loss, self._margin = KINDS[against], LOSSES[loss], margin
        self._shape = chunk_size, num_negatives
        self._scratch = threading.local()

    def run(self, chunk: Chunk) -> tuple[float, Tensor]:
        """Return the sum of the losses and the gradients of the queries; fill the chunk's gradients."""
        kind, queries = self._kind, chunk.queries
        scores, kept_scores = self._memory(queries)
        positives = kind.pairs(queries, chunk.answers)
        kind.matrix(queries, chunk.negatives, scores)
        if kind.keeps_scores:
            kept_scores.copy_(scores)
        if runs_core(scores):
            mask_scores(chunk.left_out, scores)
        else:
            scores.masked_fill_(is_left_out(chunk.left_out), -torch.inf)
        losses, positive_grads = self._loss(scores, positives, self._margin)
        query_grads = torch.empty_like(queries)
        kind.matrix_backward(scores, kept_scores, queries, chunk.negatives, query_grads, chunk.negative_grads)
        pair_query_grads, answer_grads = kind.pairs_backward(positive_grads, positives, queries, chunk.answers)
        query_grads += pair_query_grads
        chunk.answer_grads.add_(answer_grads)
        return float(losses.sum()), query_grads

    def _memory(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return memory for the scores and a copy of them, allocated once per thread."""
        if not hasattr(self._scratch, "scores"):
            scores = torch.empty(self._shape, device=queries.device)
            self._scratch.scores = scores
            self._scratch.kept = torch.empty_like(scores) if self._kind.keeps_scores else scores
        return self._scratch.scores[: len(queries)], self._scratch.kept[: len(queries)]
