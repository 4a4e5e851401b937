"""The loss of a batch of edges and its gradients, by rows of embeddings: chunk by chunk, each of them one thread's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from diskhop._native import BufferPool, has_product_gradients, product_gradients, product_scratch_bytes
from diskhop.embedding.scoring.scores import SCORES, ProductScore
from diskhop.embedding.step.contrast import NO_NODES, Chunk, Contrast, LeftOut
from diskhop.embedding.step.known_edges import KnownBatch

# Whether the edge's own score is in the softmax.
_SOFTMAXES = {"contrastive": False, "softmax": True}
_NO_RELATIONS = torch.empty(0, 0)

# Of the core (product_gradients.cpp, left_out.hpp): edges of a block, at most, and a negative's share of a table.
_BLOCK_ROWS, _PLACES_BYTES = 256, 16

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


class Batch(NamedTuple):
    """rows: int64, of sources, of destinations, of negatives for destinations by chunks, of those for sources.

    grads (rows, dim), relation_grads (2 num_edges, relation's dim): filled. relation_rows: int64 (2 num_edges), for
    destinations and for sources. known: what is right besides the nodes wanted, if anything is.
    """

    num_edges: int
    rows: Tensor
    relation_rows: Tensor | None
    known: KnownBatch | None
    grads: Tensor
    relation_grads: Tensor

    @property
    def numbers(self) -> Tensor:
        """Which node each row is, by the numbers that known has."""
        return self.rows if self.known is None else torch.from_numpy(self.known.nodes)


class Gradients(Protocol):
    """Of the loss and of what keeps embeddings small; tables are those of nodes and relations."""

    def __call__(self, batch: Batch, draws: Draws) -> float:
        """Fill in a batch's gradients; the sum of its losses, without what keeps embeddings small."""


class ProductGradients:
    """Of softmax losses of scores that are products, without dropout: by the core, a block of scores at a time."""

    def __init__(self, options: StepOptions, score: ProductScore, nodes: Tensor, relations: Tensor | None) -> None:
        self._options = options
        self._score = score
        self._nodes = nodes
        self._relations = _NO_RELATIONS if relations is None else relations
        self._num_threads = torch.get_num_threads()
        dim, num_threads = nodes.shape[1], min(self._num_threads, options.most_chunks)
        self._scratch = BufferPool(product_scratch_bytes(dim, options.num_negatives, num_threads))

    def __call__(self, batch: Batch, draws: Draws) -> float:
        """See Gradients."""
        options, known = self._options, batch.known
        left_out = (batch.numbers, NO_NODES, NO_NODES, NO_NODES, NO_NODES)
        if known is not None:
            destinations, sources = (torch.from_numpy(each) for each in known.answers)
            begins, ends = (torch.from_numpy(each).flatten() for each in (known.begins, known.ends))
            left_out = (batch.numbers, destinations, sources, begins, ends)
        return product_gradients(
            self._score, self._nodes, self._relations, batch.rows,
            NO_NODES if batch.relation_rows is None else batch.relation_rows, left_out,
            batch.grads, _NO_RELATIONS if batch.relation_rows is None else batch.relation_grads,
            batch.num_edges, options.chunk_size, options.num_negatives,
            _SOFTMAXES[options.loss], options.reciprocal, options.l2, options.n3, self._num_threads, self._scratch,
        )  # fmt: skip


class AnyGradients:
    """Of any scores and losses: functions of tensors."""

    def __init__(self, options: StepOptions, nodes: Tensor, relations: Tensor | None) -> None:
        self._options = options
        self._score = SCORES[options.model]
        self._contrast = Contrast(
            self._score.against, options.loss, options.margin, options.chunk_size, options.num_negatives
        )
        self._nodes = nodes
        self._relations = relations
        # A thread's own products are not shared out again.
        self._workers = ThreadPoolExecutor(torch.get_num_threads(), "chunks", torch.set_num_threads, (1,))

    def __call__(self, batch: Batch, draws: Draws) -> float:
        """See Gradients."""
        num_chunks = -(-batch.num_edges // self._options.chunk_size)
        return sum(self._workers.map(partial(self._run_chunk, batch, draws, num_chunks), range(num_chunks)))

    def _run_chunk(self, batch: Batch, draws: Draws, num_chunks: int, number: int) -> float:
        options, num_edges, rows, grads = self._options, batch.num_edges, batch.rows, batch.grads
        start, stop = number * options.chunk_size, min((number + 1) * options.chunk_size, num_edges)
        ends = slice(start, stop), slice(num_edges + start, num_edges + stop)
        firsts = [2 * num_edges + (side * num_chunks + number) * options.num_negatives for side in (0, 1)]
        negatives = [slice(first, first + options.num_negatives) for first in firsts]
        generator = draws(number) if options.dropout else None
        embeddings = [self._nodes.index_select(0, rows[end]) for end in ends]
        of_ends = [grads[end] for end in ends]
        for of_end, embedding in zip(of_ends, embeddings, strict=True):
            torch.mul(embedding, options.l2, out=of_end)
            if options.n3:
                of_end.addcmul_(embedding, embedding.abs(), value=options.n3)
        loss = 0.0
        # Destinations are corrupted, then sources: what is asked from is the other end.
        for side in (0, 1):
            asked, wanted = embeddings[side], embeddings[1 - side]
            relation = self._relation_embeddings(batch, ends[side])
            is_tail = side == 0 or options.reciprocal
            make = self._score.tail_query if is_tail else self._score.head_query
            make_backward = self._score.tail_query_backward if is_tail else self._score.head_query_backward
            queries = make(asked, relation)
            kept = None
            if options.dropout:
                kept = torch.empty_like(queries).bernoulli_(1 - options.dropout, generator=generator)
                kept /= 1 - options.dropout
                queries = queries * kept
            of_side, of_queries = self._contrast.run(
                Chunk(
                    queries,
                    wanted,
                    self._nodes.index_select(0, rows[negatives[side]]),
                    _left_out(batch, side, ends[1 - side], negatives[side], slice(start, stop)),
                    of_ends[1 - side],
                    grads[negatives[side]],
                )
            )
            loss += of_side
            if kept is not None:
                of_queries *= kept
            of_asked, of_relation = make_backward(of_queries, asked, relation)
            of_ends[side] += of_asked
            if batch.relation_rows is not None:
                if options.n3:
                    of_relation = of_relation + options.n3 * relation * relation.abs()
                batch.relation_grads[ends[side]] = of_relation
        return loss

    def _relation_embeddings(self, batch: Batch, end: slice) -> Tensor:
        if batch.relation_rows is None or self._relations is None:
            return _NO_RELATIONS
        return self._relations.index_select(0, batch.relation_rows[end])


def choose_gradients(options: StepOptions, nodes: Tensor, relations: Tensor | None) -> Gradients:
    """The fastest that there are; by as many threads as torch has."""
    score = SCORES[options.model].product
    if score is not None and options.loss in _SOFTMAXES and not options.dropout and has_product_gradients():
        return ProductGradients(options, score, nodes, relations)
    return AnyGradients(options, nodes, relations)


def gradients_bytes(options: StepOptions, dim: int, threads: int) -> int:
    """Memory besides the gradients: a chunk's scores and what goes with them, for each thread; negatives' places."""
    num_negatives = options.num_negatives
    chunk = max(options.chunk_size, _BLOCK_ROWS) * (2 * num_negatives + 12 * dim) + 2 * num_negatives * dim
    places = 2 * options.most_chunks * num_negatives * _PLACES_BYTES
    threads = min(threads, options.most_chunks)
    return max(4 * threads * chunk, product_scratch_bytes(dim, num_negatives, threads)) + places


def _left_out(batch: Batch, side: int, wanted: slice, negatives: slice, edges: slice) -> LeftOut:
    numbers, known = batch.numbers, batch.known
    if known is None:
        return LeftOut(numbers[wanted], numbers[negatives])
    ranges = torch.from_numpy(known.begins[side, edges]), torch.from_numpy(known.ends[side, edges])
    return LeftOut(numbers[wanted], numbers[negatives], torch.from_numpy(known.answers[side]), *ranges)
