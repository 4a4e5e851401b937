"""Loss of a batch of edges and gradients of the embeddings, computed in chunks: one thread per chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from diskhop.nn.kernels.choice import runs_core

# Losses that are a softmax: whether it includes the edge's own score.
SOFTMAXES = {"contrastive": False, "softmax": True}
_NO_RELATIONS = torch.empty(0, 0)

# Constants of the native core: maximum edges per block (product_gradients.cpp), hash table bytes per negative
# (left_out.hpp).
_BLOCK_ROWS, _PLACES_BYTES = 256, 16

# Returns the dropout generator of a chunk, by its number: threads process chunks in any order.
Draws = Callable[[int], torch.Generator]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """Options of a training step.

    model: name in SCORES.
    loss: name in LOSSES.
    margin: margin of the losses that have one.
    lr: learning rate of Adagrad.
    batch_size: maximum number of edges per batch.
    chunk_size: number of edges that share negatives.
    num_negatives: number of negatives per chunk and side.
    reciprocal: whether relations have one embedding per direction.
    n3: weight of the sum of |x|^3 / 3 over the embeddings of a batch's sources, destinations and relations.
    l2: weight of the sum of x^2 / 2 over the embeddings of a batch's sources and destinations.
    dropout: dropout rate of the queries.
    masks_known: whether negatives that form an edge of training are excluded.
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
    masks_known: bool = False

    @property
    def most_chunks(self) -> int:
        """Maximum number of chunks per batch."""
        return -(-self.batch_size // self.chunk_size)

    @property
    def most_rows(self) -> int:
        """Maximum number of embedding rows per batch, including repeated ones."""
        return 2 * self.batch_size + 2 * self.most_chunks * self.num_negatives


class Batch(NamedTuple):
    """A batch of edges.

    num_edges: number of edges.
    rows: int64 rows of sources, destinations, negatives for destinations by chunk, negatives for sources by chunk.
    relation_rows: int64 rows of relations for destinations and for sources, (2 num_edges); None without relations.
    known: known answers besides those of the batch's own edges, or None.
    grads: gradients of rows, (rows, dim); filled.
    relation_grads: gradients of relation_rows, (2 num_edges, relation_dim); filled.
    """

    num_edges: int
    rows: Tensor
    relation_rows: Tensor | None
    known: KnownBatch | None
    grads: Tensor
    relation_grads: Tensor

    @property
    def numbers(self) -> Tensor:
        """Node of each row, by the same numbers as known answers."""
        return self.rows if self.known is None else self.known.nodes


class Gradients(Protocol):
    """Computes the gradients of the loss and of the regularisation for a batch."""

    def __call__(self, batch: Batch, draws: Draws) -> float:
        """Fill a batch's gradients and return the sum of its losses, without the regularisation."""


class ProductGradients:
    """Gradients of softmax losses of product scores without dropout: the native core, in blocks of scores."""

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
            left_out = (batch.numbers, *known.answers, known.begins.flatten(), known.ends.flatten())
        return product_gradients(
            self._score, self._nodes, self._relations, batch.rows,
            NO_NODES if batch.relation_rows is None else batch.relation_rows, left_out,
            batch.grads, _NO_RELATIONS if batch.relation_rows is None else batch.relation_grads,
            batch.num_edges, options.chunk_size, options.num_negatives,
            SOFTMAXES[options.loss], options.reciprocal, options.l2, options.n3, self._num_threads, self._scratch,
        )  # fmt: skip


class AnyGradients:
    """Gradients of any score and loss, by tensor operations, where the embeddings are."""

    def __init__(self, options: StepOptions, nodes: Tensor, relations: Tensor | None) -> None:
        self._options = options
        self._score = SCORES[options.model]
        self._contrast = Contrast(
            self._score.against, options.loss, options.margin, options.chunk_size, options.num_negatives
        )
        self._nodes = nodes
        self._relations = relations
        # Each worker uses one thread for its matrix products. A device computes a chunk with all its cores.
        self._map: Callable[..., Iterator[float]] = map
        if runs_core(nodes):
            self._map = ThreadPoolExecutor(torch.get_num_threads(), "chunks", torch.set_num_threads, (1,)).map

    def __call__(self, batch: Batch, draws: Draws) -> float:
        """See Gradients."""
        num_chunks = -(-batch.num_edges // self._options.chunk_size)
        return sum(self._map(partial(self._run_chunk, batch, draws, num_chunks), range(num_chunks)))

    def _run_chunk(self, batch: Batch, draws: Draws, num_chunks: int, number: int) -> float:
        options, num_edges, rows, grads = self._options, batch.num_edges, batch.rows, batch.grads
        start, stop = number * options.chunk_size, min((number + 1) * options.chunk_size, num_edges)
        ends = slice(start, stop), slice(num_edges + start, num_edges + stop)
        firsts = [2 * num_edges + (side * num_chunks + number) * options.num_negatives for side in (0, 1)]
        negatives = [slice(first, first + options.num_negatives) for first in firsts]
        generator = draws(number) if options.dropout else None
        embeddings = [self._nodes.index_select(0, rows[end]) for end in ends]
        end_grads = [grads[end] for end in ends]
        for end_grad, embedding in zip(end_grads, embeddings, strict=True):
            torch.mul(embedding, options.l2, out=end_grad)
            if options.n3:
                end_grad.addcmul_(embedding, embedding.abs(), value=options.n3)
        loss = 0.0
        # First destinations are corrupted (sources are given), then sources (destinations are given).
        for side in (0, 1):
            given, answers = embeddings[side], embeddings[1 - side]
            relation = self._relation_embeddings(batch, ends[side])
            is_tail = side == 0 or options.reciprocal
            make = self._score.tail_query if is_tail else self._score.head_query
            make_backward = self._score.tail_query_backward if is_tail else self._score.head_query_backward
            queries = make(given, relation)
            kept = None
            if options.dropout:
                # In memory, where the generator is.
                kept = torch.empty(queries.shape).bernoulli_(1 - options.dropout, generator=generator)
                kept = kept.to(queries.device)
                kept /= 1 - options.dropout
                queries = queries * kept
            side_loss, query_grads = self._contrast.run(
                Chunk(
                    queries,
                    answers,
                    self._nodes.index_select(0, rows[negatives[side]]),
                    _left_out(batch, side, ends[1 - side], negatives[side], slice(start, stop)),
                    end_grads[1 - side],
                    grads[negatives[side]],
                )
            )
            loss += side_loss
            if kept is not None:
                query_grads *= kept
            given_grads, relation_grads = make_backward(query_grads, given, relation)
            end_grads[side] += given_grads
            if batch.relation_rows is not None:
                if options.n3:
                    relation_grads = relation_grads + options.n3 * relation * relation.abs()
                batch.relation_grads[ends[side]] = relation_grads
        return loss

    def _relation_embeddings(self, batch: Batch, end: slice) -> Tensor:
        if batch.relation_rows is None or self._relations is None:
            return _NO_RELATIONS
        return self._relations.index_select(0, batch.relation_rows[end])


def choose_gradients(options: StepOptions, nodes: Tensor, relations: Tensor | None) -> Gradients:
    """Return the fastest implementation that supports the options, with torch's number of threads."""
    score = SCORES[options.model].product
    if score is not None and options.loss in SOFTMAXES and not options.dropout and has_product_gradients():
        return ProductGradients(options, score, nodes, relations)
    return AnyGradients(options, nodes, relations)


def gradients_bytes(options: StepOptions, dim: int, threads: int) -> int:
    """Return the memory in bytes in addition to the gradients: scores and embeddings per thread, hash tables."""
    num_negatives = options.num_negatives
    chunk = max(options.chunk_size, _BLOCK_ROWS) * (2 * num_negatives + 12 * dim) + 2 * num_negatives * dim
    places = 2 * options.most_chunks * num_negatives * _PLACES_BYTES
    threads = min(threads, options.most_chunks)
    return max(4 * threads * chunk, product_scratch_bytes(dim, num_negatives, threads)) + places


def _left_out(batch: Batch, side: int, answers: slice, negatives: slice, edges: slice) -> LeftOut:
    numbers, known = batch.numbers, batch.known
    if known is None:
        return LeftOut(numbers[answers], numbers[negatives])
    ranges = known.begins[side, edges], known.ends[side, edges]
    return LeftOut(numbers[answers], numbers[negatives], known.answers[side], *ranges)
