"""Links of each pass of a run, with their negatives or candidates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from diskhop.config.link import BINARY, DRAWS, PAIR_METRICS, LinkConfig
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.files import map_array
from diskhop.embedding.ranking.protocol import num_candidates
from diskhop.embedding.step.draws import draw_candidates
from diskhop.pipeline.batch import Pass
from diskhop.protocols import NodeIds, NodeRows, Purpose, SamplerSpec, SeedTimes
from diskhop.runs.nodes.samplers import eval_sampler, train_sampler
from diskhop.runs.passes import left_of
from diskhop.runtime.ranks import ONE, Ranks
from diskhop.sampling.links import LinkEnds, Links, shuffle_key
from diskhop.sampling.negatives import Candidates, DrawKey, Negatives, candidates
from diskhop.sampling.seeds import SeedSet, count_batches

_NO_SEEDS = NodeRows(np.empty(0, np.int64))
_FOR_DESTINATIONS, _FOR_SOURCES = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedCandidates(Negatives):
    """Nodes that all edges are ranked against, in every batch: those that `diskhop evaluate` ranks them against.

    wanted: number of random candidates of each side, each node at most once; as many as there are of its type.
    seed: random seed of the run.
    """

    wanted: int
    seed: int

    def draw(self, _num_links: int, _times: SeedTimes, _key: DrawKey) -> tuple[NodeIds, NodeIds]:
        """Return candidates in the place of sources, and of destinations."""
        return self._side(self.sources, _FOR_SOURCES), self._side(self.destinations, _FOR_DESTINATIONS)

    def _side(self, nodes: Candidates, side: int) -> NodeIds:
        count = num_candidates(self.wanted, nodes.num_nodes) or nodes.num_nodes
        drawn: NodeIds = draw_candidates(nodes.num_nodes, count, self.seed)[side]
        return drawn + nodes.first_row

    def digest(self) -> str:
        """See Negatives."""
        return f"{Negatives.digest(self)} {self.wanted} {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkPasses:
    """The links of a run by the use of a pass.

    parts: links of training, validation and test.
    config: options of the run.
    train_negatives: negatives of training.
    eval_negatives: those of validation and test.
    train_sampler, eval_sampler: expand the ends of links.
    """

    parts: Mapping[Purpose, LinkEnds]
    config: LinkConfig
    train_negatives: Negatives
    eval_negatives: Negatives
    train_sampler: SamplerSpec
    eval_sampler: SamplerSpec

    @property
    def num_batches(self) -> int:
        """Training batches per epoch."""
        config = self.config
        return count_batches(len(self.parts[Purpose.TRAIN]), config.batch_size, config.max_batches)

    def links(self, purpose: Purpose, epoch: int = 0) -> Links:
        """Return the links of a pass: in the order of an epoch in training, else as they are stored."""
        if purpose != Purpose.TRAIN:
            return Links(ends=self.parts[purpose], negatives=self.eval_negatives)
        key = shuffle_key(self.config.seed, purpose, epoch)
        return Links(ends=self.parts[purpose], negatives=self.train_negatives, shuffled_by=key)

    def seed_set(self, purpose: Purpose) -> SeedSet:
        """Return the seeds of a pass, for plans."""
        config, is_training = self.config, purpose == Purpose.TRAIN
        return SeedSet(
            purpose=purpose,
            seeds=_NO_SEEDS,
            batch_size=config.batch_size if is_training else config.eval_batch_size,
            sampler=self.train_sampler if is_training else self.eval_sampler,
            is_shuffled=is_training,
            links=self.links(purpose),
            seed=config.seed,
        )

    def train_pass(
        self, epoch: int, share: Ranks = ONE, done: Collection[int] = (), *, with_in_degrees: bool = False
    ) -> Pass:
        """Return the pass of an epoch. share: the rank whose batches it has. done: batches that are left out."""
        return Pass(
            seeds=_NO_SEEDS,
            numbers=share.share(left_of(range(self.num_batches), done)),
            batch_size=self.config.batch_size,
            sampler=self.train_sampler,
            seed=self.config.seed,
            purpose=Purpose.TRAIN,
            epoch=epoch,
            with_in_degrees=with_in_degrees,
            links=self.links(Purpose.TRAIN, epoch),
        )

    def eval_pass(self, purpose: Purpose, share: Ranks = ONE, *, with_in_degrees: bool) -> Pass:
        """Return the pass of validation or test. Every epoch draws the same neighbours and the same negatives."""
        links = self.links(purpose)
        return Pass(
            seeds=_NO_SEEDS,
            numbers=share.share(range(count_batches(len(links), self.config.eval_batch_size))),
            batch_size=self.config.eval_batch_size,
            sampler=self.eval_sampler,
            seed=self.config.seed,
            purpose=purpose,
            epoch=0,
            with_in_degrees=with_in_degrees,
            links=links,
        )


def make_passes(config: LinkConfig, dataset: Dataset, parts: Mapping[Purpose, LinkEnds]) -> LinkPasses:
    """Return the passes of a run. dataset: with the edges that messages of training use."""
    uniform = Candidates(num_nodes=dataset.num_nodes)
    drawn = uniform
    if config.negative_draws != DRAWS[0]:
        files = dataset.topology
        in_degree_sums = map_array(files.indptr_path, np.int64, files.num_nodes + 1)
        drawn = candidates(dataset.num_nodes, cumulative=in_degree_sums)
    samplers = train_sampler(config), eval_sampler(config)
    return passes_of(config, parts, LinkNodes(uniform, uniform), LinkNodes(drawn, drawn), samplers)


class LinkNodes(NamedTuple):
    """The nodes that each end of a negative is drawn from."""

    sources: Candidates
    destinations: Candidates


def passes_of(
    config: LinkConfig,
    parts: Mapping[Purpose, LinkEnds],
    uniform: LinkNodes,
    drawn: LinkNodes,
    samplers: tuple[SamplerSpec, SamplerSpec],
) -> LinkPasses:
    """Return the passes of a run.

    uniform: the nodes of evaluation, all as likely. drawn: those of training. samplers: of training and of evaluation.
    """
    train = Negatives(
        mode="binary" if config.neg_sampling == BINARY else "triplet", amount=config.negatives, **drawn._asdict()
    )
    evaluation: Negatives = Negatives(mode="binary", amount=1, **uniform._asdict())
    if config.metric not in PAIR_METRICS:
        evaluation = SharedCandidates(
            mode="binary", amount=1, **uniform._asdict(), wanted=config.eval_candidates, seed=config.seed
        )
    return LinkPasses(
        parts=parts,
        config=config,
        train_negatives=train,
        eval_negatives=evaluation,
        train_sampler=samplers[0],
        eval_sampler=samplers[1],
    )
