"""One step of training: scores, loss, gradients and Adagrad of a batch of edges, synchronously.

All that a batch reads is read before anything is changed, and rows that it has several times are changed once. Each
chunk of edges is one thread's from beginning to end: no thread waits for another's share of a product, and the same
batch gives the same bits, however many threads there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop._native import RowUpdater
from diskhop.embedding.contrast import Chunk, LeftOut, choose_contrast
from diskhop.embedding.edges import EdgeRows
from diskhop.embedding.known import KnownBatch
from diskhop.embedding.scores import SCORES

_EPSILON = 1e-10

# Of dropout, by a chunk's number: threads take chunks in any order.
Draws = Callable[[int], torch.Generator]


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
    """Steps with the same options, by as many threads as torch has; holds memory for a batch's gradients."""

    def __init__(self, options: StepOptions, nodes: Table, relations: Table | None) -> None:
        self._options = options
        self._score = SCORES[options.model]
        self._contrast = choose_contrast(
            self._score.against, options.loss, options.margin, options.chunk_size, options.num_negatives
        )
        self._nodes = nodes
        self._relations = relations
        self._values = torch.from_numpy(nodes.values)
        self._relation_values = None if relations is None else torch.from_numpy(relations.values)
        dim = nodes.values.shape[1]
        self._grads = torch.empty(options.most_rows, dim)
        self._rows = torch.empty(options.most_rows, dtype=torch.int64)
        num_relation_rows = 0 if relations is None else 2 * options.batch_size
        self._relation_grads = torch.empty(num_relation_rows, 0 if relations is None else relations.values.shape[1])
        num_threads = torch.get_num_threads()
        self._updater = RowUpdater(num_threads)
        # A thread's own products are not shared out again.
        self._workers = ThreadPoolExecutor(num_threads, "chunks", torch.set_num_threads, (1,))

    def run(
        self,
        edges: EdgeRows,
        negatives: NDArray[np.int64],
        draws: Draws,
        fixed: Sequence[range] = (),
        known: KnownBatch | None = None,
    ) -> float:
        """Train a batch of at most batch_size edges. Returns the sum of its losses before.

        negatives: (2, chunks, num_negatives), rows for destinations and for sources; those that are the node wanted, or
        known to be as right, do not count. fixed: rows that negatives may have and that are not changed.
        """
        options, num_edges = self._options, len(edges)
        ends = torch.from_numpy(edges.sources), torch.from_numpy(edges.destinations)
        num_rows = 2 * num_edges + negatives.size
        rows, grads = self._rows[:num_rows], self._grads[:num_rows]
        torch.cat([*ends, torch.from_numpy(negatives).flatten()], out=rows)
        relations = self._relation_rows(edges)
        run_chunk = partial(self._run_chunk, rows, grads, num_edges, negatives.shape[1], relations, draws, known)
        loss = sum(self._workers.map(run_chunk, range(negatives.shape[1])))
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
        num_edges: int,
        num_chunks: int,
        relations: Tensor | None,
        draws: Draws,
        known: KnownBatch | None,
        number: int,
    ) -> float:
        """Fill in the gradients of the rows of a chunk, by its number; returns the sum of its losses."""
        options = self._options
        start, stop = number * options.chunk_size, min((number + 1) * options.chunk_size, num_edges)
        ends = slice(start, stop), slice(num_edges + start, num_edges + stop)
        firsts = [2 * num_edges + (side * num_chunks + number) * options.num_negatives for side in (0, 1)]
        negatives = [slice(first, first + options.num_negatives) for first in firsts]
        generator = draws(number) if options.dropout else None
        embeddings = [self._values.index_select(0, rows[end]) for end in ends]
        of_ends = [grads[end] for end in ends]
        for of_end, embedding in zip(of_ends, embeddings, strict=True):
            torch.mul(embedding, options.l2, out=of_end)
            if options.n3:
                of_end.addcmul_(embedding, embedding.abs(), value=options.n3)
        loss = 0.0
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
                kept = torch.empty_like(queries).bernoulli_(1 - options.dropout, generator=generator)
                kept /= 1 - options.dropout
                queries = queries * kept
            if known is None:
                left_out = LeftOut(rows[ends[1 - side]], rows[negatives[side]])
            else:
                nodes, edges = torch.from_numpy(known.nodes), slice(start, stop)
                left_out = LeftOut(
                    nodes[ends[1 - side]],
                    nodes[negatives[side]],
                    torch.from_numpy(known.answers[side]),
                    torch.from_numpy(known.begins[side, edges]),
                    torch.from_numpy(known.ends[side, edges]),
                )
            of_side, of_queries = self._contrast(
                Chunk(
                    queries,
                    wanted,
                    self._values.index_select(0, rows[negatives[side]]),
                    left_out,
                    of_ends[1 - side],
                    grads[negatives[side]],
                )
            )
            loss += of_side
            if kept is not None:
                of_queries *= kept
            of_asked, of_relation = make_backward(of_queries, asked, relation)
            of_ends[side] += of_asked
            if relations is not None:
                if options.n3:
                    of_relation = of_relation + options.n3 * relation * relation.abs()
                self._relation_grads[ends[side]] = of_relation
        return loss

    def _relation_embeddings(self, relations: Tensor | None, end: slice) -> Tensor:
        if relations is None or self._relation_values is None:
            return torch.empty(0)
        return self._relation_values.index_select(0, relations[end])


def step_bytes(options: StepOptions, dim: int, relation_dim: int, threads: int) -> int:
    """Memory of a Step: gradients and rows of a batch, and of each thread the scores of a chunk and what goes with."""
    gradients = options.most_rows * (4 * dim + 3 * 8) + 2 * options.batch_size * (4 * relation_dim + 8)
    chunk = options.chunk_size * (2 * options.num_negatives + 12 * dim) + options.num_negatives * dim
    return gradients + 4 * min(threads, options.most_chunks) * chunk
