"""Batches of links from a pipeline: their nodes' neighbourhoods, without the edges that the batch is scored on."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.config.link import PAIR_METRICS, LinkConfig
from diskhop.dataset.dataset import Dataset
from diskhop.io.locks import SharedLock
from diskhop.nn.layers.aggregate import Block, BlockWeights
from diskhop.pipeline.batch import InFlightBatch, MiniBatch, Pass, Prepare
from diskhop.pipeline.edge_weights import OpenWeights
from diskhop.pipeline.pipeline import Pipeline
from diskhop.pipeline.stream import BatchStream
from diskhop.pipeline.transfer import Destination, DeviceCopies
from diskhop.protocols import Purpose, SampledBatch
from diskhop.runs.links.batches import LinkPasses
from diskhop.runs.links.measures import PairScores, RankScores
from diskhop.runs.nodes.samplers import draws_all
from diskhop.runs.passes import RunPass
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.ranks import ONE, Ranks
from diskhop.sampling.known_links import KnownLinks
from diskhop.sampling.links import LinkBatch
from diskhop.sampling.message_edges import leave_out

# Own scores are the diagonals of products of this number of edges.
_OWN_AT_ONCE = 64


@dataclass(frozen=True, slots=True, eq=False)
class LinkInputs:
    """Inputs of a batch of links, in addition to features.

    links: the edges and negatives of the batch, by places among its seeds.
    messages: the batch with the edges that messages use.
    weights: of these edges; None: all 1.
    left_out: int64 (lists), edges of each list that messages do not use; None: they use all.
    by_type: `messages` as a model of types takes them; None for other models.
    known_tails, known_heads: candidates that form an edge of the graph, bool (edges, candidates); None: keep all.
    """

    links: LinkBatch
    messages: SampledBatch
    weights: BlockWeights | None
    left_out: NDArray[np.int64] | None = None
    known_tails: NDArray[np.bool_] | None = None
    known_heads: NDArray[np.bool_] | None = None
    by_type: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class LinkPlaces:
    """The links of a batch as tensors, by places among its seeds.

    num_edges: edges that are scored; they come first.
    sources, destinations: int64 (links).
    negatives: int64 (edges, negatives), other destinations of each edge; None: negatives are links.
    left_out: tails and heads that no edge is ranked against, bool (edges, candidates) each; None: nothing is ranked.
    """

    num_edges: int
    sources: Tensor
    destinations: Tensor
    negatives: Tensor | None
    left_out: tuple[Tensor, Tensor] | None

    @classmethod
    def of(cls, inputs: LinkInputs, *, is_ranked: bool) -> LinkPlaces:
        """Take the places of a batch. is_ranked: whether its edges are ranked among candidates."""
        links = inputs.links
        count = len(links.positions)
        return cls(
            count,
            torch.from_numpy(links.sources),
            torch.from_numpy(links.destinations),
            None if links.negatives is None else torch.from_numpy(np.ascontiguousarray(links.negatives)),
            (
                _left_out(links.destinations, count, inputs.known_tails),
                _left_out(links.sources, count, inputs.known_heads),
            )
            if is_ranked
            else None,
        )

    def mapped(self, function: Callable[[Tensor], Tensor]) -> LinkPlaces:
        """Return the places with a function applied to each tensor, such as one that copies it to a device."""
        return LinkPlaces(
            self.num_edges,
            function(self.sources),
            function(self.destinations),
            None if self.negatives is None else function(self.negatives),
            None if self.left_out is None else (function(self.left_out[0]), function(self.left_out[1])),
        )


@dataclass(frozen=True, slots=True, eq=False)
class DeliveredLinks:
    """Inputs of a batch of links on a device, in addition to features. edges: of messages, as the model takes them."""

    edges: Any
    places: LinkPlaces


@dataclass(frozen=True, slots=True, eq=False)
class OpenGraph:
    """A graph of messages that is open: its pipeline, and the weights of its edges, if they are used."""

    pipeline: Pipeline
    weights: OpenWeights | None


class LinkFeed:
    """Batches of links, see feeds.Feed. One graph is open at a time: that of training, then that of test.

    open_graph: opens the graph of training (False) or of test (True) within the budget.
    passes: the links of each pass.
    known: all edges, for ranks that leave them out as candidates.
    uses_degrees: whether the model reads in-degrees.
    lock: that of the split, which is held as long as the feed.
    copies: to the device that batches are delivered on; None: they stay in memory.
    """

    def __init__(
        self,
        open_graph: Callable[[bool], AbstractContextManager[OpenGraph]],
        passes: LinkPasses,
        config: LinkConfig,
        known: KnownLinks,
        *,
        uses_degrees: bool,
        lock: SharedLock,
        copies: DeviceCopies | None = None,
    ) -> None:
        self._lock = lock
        self._copies = copies
        self._open_graph = open_graph
        self._passes = passes
        self._config = config
        self._known = known
        self._uses_degrees = uses_degrees
        self._stack = ExitStack()
        self._open: tuple[bool, OpenGraph] | None = None

    def close(self) -> None:
        """Close the graph that is open."""
        self._open = None
        self._stack.close()

    def train(
        self, epoch: int, share: Ranks = ONE, following: RunPass | None = None, done: Collection[int] = ()
    ) -> AbstractContextManager[BatchStream]:
        """See Feed."""
        wanted = self._train_pass(epoch, share, done)
        return self._run(wanted, share, following, with_strengths=draws_all(self._config))

    def measure(
        self, purpose: Purpose, share: Ranks = ONE, following: RunPass | None = None
    ) -> AbstractContextManager[BatchStream]:
        """See Feed."""
        return self._run(self._eval_pass(purpose, share), share, following, with_strengths=True)

    def _run(self, wanted: Pass, share: Ranks, following: RunPass | None, *, with_strengths: bool) -> BatchStream:
        graph = self._graph(is_test=wanted.purpose == Purpose.TEST)
        make_following = None
        # The test is on another graph, which is opened once this one is closed.
        if following is not None and following.purpose != Purpose.TEST:
            make_following = partial(self._pass, following, share)
        prepare = self._prepare(graph, wanted, with_strengths=with_strengths)
        destination = None
        if self._copies is not None:
            destination = Destination(self._copies, partial(self._move, is_ranked=self._is_ranked(wanted.purpose)))
        return graph.pipeline.run(wanted, prepare, destination, following=make_following)

    def _pass(self, of: RunPass, share: Ranks) -> Pass:
        return self._train_pass(of.epoch, share) if of.purpose == Purpose.TRAIN else self._eval_pass(of.purpose, share)

    def _train_pass(self, epoch: int, share: Ranks, done: Collection[int] = ()) -> Pass:
        with_in_degrees = self._uses_degrees and draws_all(self._config)
        return self._passes.train_pass(epoch, share, done, with_in_degrees=with_in_degrees)

    def _eval_pass(self, purpose: Purpose, share: Ranks) -> Pass:
        return self._passes.eval_pass(purpose, share, with_in_degrees=self._uses_degrees)

    def features_of(self, batch: MiniBatch | InFlightBatch) -> Any:
        """Return the features of a batch that are in memory, as the model takes them."""
        return batch.x

    def edges_of(self, batch: MiniBatch | InFlightBatch, rows: Tensor | None) -> Any:
        """Return the edges of messages, as the model takes them. rows: of x that hold the nodes' features."""
        inputs: LinkInputs = batch.prepared
        return Block.of(inputs.messages, _degrees_of_messages(batch), rows, inputs.weights)

    def copy_features(self, batch: InFlightBatch, copies: DeviceCopies) -> None:
        """Replace the features of a batch by those on a device."""
        assert batch.x is not None
        if batch.staged is not None:
            batch.x = batch.staged.assemble(batch.x, copies)
        else:
            batch.x = copies.copy(batch.x, batch.rows)

    def delivered_features(self, batch: MiniBatch) -> Any:
        """Return the features of a batch on a device, as the model takes them."""
        return batch.x

    def split_by_type(self, _graph: Dataset, _messages: SampledBatch) -> Any:
        """Return the messages of a graph as a model of types takes them; None for other models."""
        return None

    def answers(self, _graph: Dataset, _sampled: SampledBatch) -> NDArray[np.bool_] | None:
        """Return which edges of a batch of a graph are of a type that may give scored edges away; None for all."""
        return None

    def forward(self, model: Any, batch: MiniBatch) -> PairScores | RankScores:
        """See Feed."""
        if isinstance(batch.prepared, DeliveredLinks):
            places = batch.prepared.places
            outputs: Tensor = model(self.delivered_features(batch), batch.prepared.edges)
        else:
            purpose = Purpose.TRAIN if model.training else Purpose.VALID
            places = LinkPlaces.of(batch.prepared, is_ranked=self._is_ranked(purpose))
            rows = None if batch.rows is None else torch.from_numpy(batch.rows.astype(np.int32))
            outputs = model(self.features_of(batch), self.edges_of(batch, rows))
        embeddings = outputs[: batch.sampled.num_seeds]
        score = score_pairs if places.left_out is None else score_candidates
        return score(model, embeddings, places)

    def _is_ranked(self, purpose: Purpose) -> bool:
        """Return whether edges are ranked: training always tells edges from negatives."""
        return purpose != Purpose.TRAIN and self._config.metric not in PAIR_METRICS

    def _move(self, batch: InFlightBatch, copies: DeviceCopies, *, is_ranked: bool) -> None:
        edges = self.edges_of(batch, None).mapped(copies.copy)
        self.copy_features(batch, copies)
        places = LinkPlaces.of(batch.prepared, is_ranked=is_ranked)
        batch.rows = batch.in_degrees = None
        batch.prepared = DeliveredLinks(edges, places.mapped(copies.copy))

    def _graph(self, *, is_test: bool) -> OpenGraph:
        if self._open is None or self._open[0] != is_test:
            self.close()
            self._open = is_test, self._stack.enter_context(self._open_graph(is_test))
        return self._open[1]

    def _prepare(self, graph: OpenGraph, wanted: Pass, *, with_strengths: bool) -> Prepare:
        """Return what finds the links of a batch, and the edges that messages use, while it is prefetched."""
        is_training = wanted.purpose == Purpose.TRAIN
        ranks = self._is_ranked(wanted.purpose) and self._config.eval_filtered

        def prepare(sampled: SampledBatch, _x: Tensor) -> LinkInputs:
            links, messages, left_out = wanted.links_of(sampled.number), sampled, None
            if is_training and not self._config.keep_supervision:
                count = len(links.positions)
                ends = links.sources[:count], links.destinations[:count]
                messages, _ = leave_out(sampled, *ends, self.answers(graph.pipeline.dataset, sampled))
                left_out = np.diff(sampled.indptr) - np.diff(messages.indptr)
            # Strengths of the whole graph would tell which nodes lack an edge.
            weights = None
            if graph.weights is not None:
                weights = graph.weights.of(messages, with_strengths=with_strengths and left_out is None)
            known = self._known_candidates(links) if ranks else (None, None)
            by_type = self.split_by_type(graph.pipeline.dataset, messages)
            return LinkInputs(links, messages, weights, left_out, known[0], known[1], by_type)

        return prepare

    def _known_candidates(self, links: LinkBatch) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which candidates form an edge with each edge's source, and with its destination."""
        count, seeds = len(links.positions), links.seeds
        sources, destinations = seeds[links.sources], seeds[links.destinations]
        tails = self._known.table(sources[:count], destinations[count:])
        heads = self._known.table(sources[count:], destinations[:count]).T
        return tails, heads


def _left_out(ends: NDArray[np.int64], num_edges: int, known: NDArray[np.bool_] | None) -> Tensor:
    """Return which candidates are no other node than an edge's own end, or known to form an edge."""
    is_left_out = ends[:num_edges, None] == ends[None, num_edges:]
    if known is not None:
        is_left_out |= known
    return torch.from_numpy(is_left_out)


def _degrees_of_messages(batch: MiniBatch | InFlightBatch) -> Tensor | None:
    """Return in-degrees in the whole graph without the edges that are left out: these would tell who has an edge."""
    left_out: NDArray[np.int64] | None = batch.prepared.left_out
    if batch.in_degrees is None or left_out is None:
        return batch.in_degrees
    degrees = batch.in_degrees.clone()
    degrees[: len(left_out)] -= torch.from_numpy(left_out)
    return degrees


def score_pairs(model: Any, embeddings: Tensor, links: LinkPlaces) -> PairScores:
    """Score the edges and negatives of a batch by a model's decoder. embeddings: float32 (seeds, dim)."""
    count, sources, destinations = links.num_edges, links.sources, links.destinations
    if links.negatives is None:
        scores = model.decoder(embeddings.index_select(0, sources), embeddings.index_select(0, destinations))
        # Negative i belongs to edge i % count.
        return PairScores(scores[:count], scores[count:].view(-1, count).t())
    amount = links.negatives.shape[1]
    others = links.negatives.flatten()
    heads = torch.cat([sources, sources.repeat_interleave(amount)])
    scores = model.decoder(
        embeddings.index_select(0, heads), embeddings.index_select(0, torch.cat([destinations, others]))
    )
    return PairScores(scores[:count], scores[count:].view(count, amount))


def score_candidates(model: Any, embeddings: Tensor, links: LinkPlaces) -> RankScores:
    """Score the edges of a batch, and each with every candidate in the place of one end."""
    assert links.left_out is not None, "edges are ranked"
    count = links.num_edges
    sources, destinations = (embeddings.index_select(0, each) for each in (links.sources, links.destinations))
    tails = model.decoder.matrix(sources[:count], destinations[count:])
    heads = model.decoder.matrix(destinations[:count], sources[count:])
    # The scores of edges round as those of candidates do.
    blocks = [slice(start, stop) for start, stop in row_ranges(count, _OWN_AT_ONCE)]
    own_scores = [model.decoder.matrix(sources[each], destinations[each]).diagonal() for each in blocks]
    positives = torch.cat(own_scores)
    for scores, is_left_out in zip((tails, heads), links.left_out, strict=True):
        scores.masked_fill_(is_left_out, -torch.inf)
    return RankScores(positives, tails, heads)
