"""One step of training: scores, loss, gradients and Adagrad of a batch of edges, synchronously.

All that a batch reads is read before anything is changed, and rows that it has several times are changed once: the same
batch gives the same bits, however many threads there are. Edges are taken in chunks, whose scores stay in the caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop._native import RowUpdater
from diskhop.embedding.against import KINDS
from diskhop.embedding.edges import EdgeRows
from diskhop.embedding.losses import LOSSES, EdgeLosses
from diskhop.embedding.scores import SCORES

_EPSILON = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """model: a name in SCORES; loss: in LOSSES; margin: of the losses that have one. lr: Adagrad's.

    chunk_size: edges that share negatives, of which there are num_negatives at each side. reciprocal: relations have
    an embedding for each direction. n3, l2: weights of the sums of |x|^3 / 3 and x^2 / 2 of a batch's embeddings.
    dropout: of queries' values.
    """

    model: str
    loss: str
    margin: float
    lr: float
    batch_size: int
    chunk_size: int
    num_negatives: int
    reciprocal: bool
    n3: float
    l2: float
    dropout: float

    @property
    def most_chunks(self) -> int:
        """Of a batch."""
        return -(-self.batch_size // self.chunk_size)

    @property
    def most_rows(self) -> int:
        """Rows of embeddings that a batch has gradients of, with repeats."""
        return 2 * self.batch_size + 2 * self.most_chunks * self.num_negatives


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of embeddings and Adagrad's sums of squares, float32 (rows, dim) and (rows, dim or 1); of this memory."""

    values: NDArray[np.float32]
    squares: NDArray[np.float32]


class Step:
    """Steps with the same options; holds memory for a batch's gradients."""

    def __init__(self, options: StepOptions, nodes: Table, relations: Table | None) -> None:
        self._options = options
        self._score = SCORES[options.model]
        self._kind = KINDS[self._score.against]
        self._loss = LOSSES[options.loss]
        self._nodes = nodes
        self._relations = relations
        self._values = torch.from_numpy(nodes.values)
        self._relation_values = None if relations is None else torch.from_numpy(relations.values)
        dim = nodes.values.shape[1]
        self._grads = torch.empty(options.most_rows, dim)
        self._rows = torch.empty(options.most_rows, dtype=torch.int64)
        self._scores = torch.empty(options.chunk_size, options.num_negatives)
        self._kept_scores = torch.empty_like(self._scores) if self._kind.keeps_scores else self._scores
        num_relation_rows = 0 if relations is None else 2 * options.batch_size
        self._relation_grads = torch.empty(num_relation_rows, 0 if relations is None else relations.values.shape[1])
        self._updater = RowUpdater(torch.get_num_threads())

    def run(
        self, edges: EdgeRows, negatives: NDArray[np.int64], draws: torch.Generator, fixed: Sequence[range] = ()
    ) -> float:
        """Train a batch of at most batch_size edges. Returns the sum of its losses before.

        negatives: (2, chunks, num_negatives), rows for destinations and for sources. draws: of dropout. fixed: rows
        that negatives may have and that are not changed.
        """
        options = self._options
        num_edges, num_chunks = len(edges), negatives.shape[1]
        ends = torch.from_numpy(edges.sources), torch.from_numpy(edges.destinations)
        num_rows = 2 * num_edges + negatives.size
        rows, grads = self._rows[:num_rows], self._grads[:num_rows]
        torch.cat([*ends, torch.from_numpy(negatives).flatten()], out=rows)
        relations = self._relation_rows(edges)
        loss = 0.0
        for number in range(num_chunks):
            start = number * options.chunk_size
            stop = min(start + options.chunk_size, num_edges)
            of_negatives = [
                slice(first, first + options.num_negatives)
                for first in (2 * num_edges + (side * num_chunks + number) * options.num_negatives for side in (0, 1))
            ]
            of_ends = slice(start, stop), slice(num_edges + start, num_edges + stop)
            loss += self._run_chunk(rows, grads, of_ends, of_negatives, relations, draws)
        if not np.isfinite(loss):
            return loss
        for each in fixed:
            # Rows whose gradients are 0 stay as they are.
            drawn = rows[2 * num_edges :]
            grads[2 * num_edges :][(drawn >= each.start) & (drawn < each.stop)] = 0
        self._updater.update(self._nodes.values, self._nodes.squares, rows, grads, options.lr, _EPSILON)
        if self._relations is not None and relations is not None:
            self._updater.update(
                self._relations.values,
                self._relations.squares,
                relations,
                self._relation_grads[: len(relations)],
                options.lr,
                _EPSILON,
            )
        return loss

    def _relation_rows(self, edges: EdgeRows) -> Tensor | None:
        """The relation's row of each edge, for its tail query and then for its head query."""
        if self._relations is None or edges.relations is None:
            return None
        numbers = torch.from_numpy(edges.relations).long()
        reverse = numbers + len(self._relations.values) // 2 if self._options.reciprocal else numbers
        return torch.cat([numbers, reverse])

    def _run_chunk(
        self,
        rows: Tensor,
        grads: Tensor,
        ends: tuple[slice, slice],
        negatives: list[slice],
        relations: Tensor | None,
        draws: torch.Generator,
    ) -> float:
        """Fill in the gradients of a chunk's rows; returns the sum of its losses."""
        options = self._options
        embeddings = [self._values.index_select(0, rows[end]) for end in ends]
        of_ends = [grads[end] for end in ends]
        for of_end, embedding in zip(of_ends, embeddings, strict=True):
            torch.mul(embedding, options.l2, out=of_end)
            if options.n3:
                of_end.addcmul_(embedding, embedding.abs(), value=options.n3)
        loss = torch.zeros(())
        # Destinations are corrupted, then sources: what is asked from is the other end.
        for side in (0, 1):
            asked, wanted = embeddings[side], embeddings[1 - side]
            relation = self._relation_embeddings(relations, ends[side])
            is_tail = side == 0 or options.reciprocal
            make = self._score.tail_query if is_tail else self._score.head_query
            make_backward = self._score.tail_query_backward if is_tail else self._score.head_query_backward
            queries = make(asked, relation)
            kept = None
            if options.dropout:
                kept = torch.empty_like(queries).bernoulli_(1 - options.dropout, generator=draws)
                kept /= 1 - options.dropout
                queries = queries * kept
            positives = self._kind.pairs(queries, wanted)
            found, of_queries = self._against_negatives(
                queries, positives, rows[ends[1 - side]], rows[negatives[side]], grads[negatives[side]]
            )
            loss += found.losses.sum()
            by_pairs, of_wanted = self._kind.pairs_backward(found.of_positives, positives, queries, wanted)
            of_queries += by_pairs
            of_ends[1 - side] += of_wanted
            if kept is not None:
                of_queries *= kept
            of_asked, of_relation = make_backward(of_queries, asked, relation)
            of_ends[side] += of_asked
            if relations is not None:
                if options.n3:
                    of_relation = of_relation + options.n3 * relation * relation.abs()
                self._relation_grads[ends[side]] = of_relation
        return float(loss)

    def _relation_embeddings(self, relations: Tensor | None, end: slice) -> Tensor:
        if relations is None or self._relation_values is None:
            return torch.empty(0)
        return self._relation_values.index_select(0, relations[end])

    def _against_negatives(
        self, queries: Tensor, positives: Tensor, wanted_rows: Tensor, negative_rows: Tensor, of_negatives: Tensor
    ) -> tuple[EdgeLosses, Tensor]:
        """Losses and gradients of the queries; fills in those of the negatives. One that is the node wanted is none."""
        scores, kept_scores = self._scores[: len(queries)], self._kept_scores[: len(queries)]
        embeddings = self._values.index_select(0, negative_rows)
        self._kind.matrix(queries, embeddings, scores)
        if self._kind.keeps_scores:
            kept_scores.copy_(scores)
        _mask(scores, wanted_rows, negative_rows)
        found = self._loss(scores, positives, self._options.margin)
        of_queries = torch.empty_like(queries)
        self._kind.matrix_backward(scores, kept_scores, queries, embeddings, of_queries, of_negatives)
        return found, of_queries


def step_bytes(options: StepOptions, dim: int, relation_dim: int) -> int:
    """Memory of a Step: gradients and rows of a batch, scores of a chunk and what is computed with them."""
    gradients = options.most_rows * (4 * dim + 3 * 8) + 2 * options.batch_size * (4 * relation_dim + 8)
    chunk = options.chunk_size * (2 * options.num_negatives + 12 * dim) + options.num_negatives * dim
    return gradients + 4 * chunk


def _mask(scores: Tensor, wanted_rows: Tensor, negative_rows: Tensor) -> None:
    """Set the score of a negative that is the node wanted to -inf: there are few, which sorting finds."""
    ordered, order = negative_rows.sort()
    first = torch.searchsorted(ordered, wanted_rows)
    count = torch.searchsorted(ordered, wanted_rows, right=True) - first
    edges = count.nonzero().flatten()
    while len(edges):
        scores[edges, order[first[edges]]] = -torch.inf
        first[edges] += 1
        count[edges] -= 1
        edges = edges[count[edges] > 0]
