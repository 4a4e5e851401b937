"""Where the batches of a phase are made and trained: in memory here, on a device in device_trainer.py."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop.embedding.partitions.edges import EdgeRows, shuffled
from diskhop.embedding.partitions.slots import HostSlots
from diskhop.embedding.step.draws import Draw, generator
from diskhop.embedding.step.gradients import StepOptions
from diskhop.embedding.step.known_edges import KnownEdges
from diskhop.embedding.step.negatives import NegativeSampler
from diskhop.embedding.step.step import Step, Table
from diskhop.runs.embedding.parts import EmbeddingParts
from diskhop.runs.embedding.phases import Phase


class PhaseEdges(NamedTuple):
    """The edges of a phase.

    edges: in the order of their buckets.
    phase: the phase.
    pass_number: of the pass, in the run.
    known: edges that negatives must not form; None: they may form any.
    """

    edges: EdgeRows
    phase: Phase
    pass_number: int
    known: KnownEdges | None


class Trained(NamedTuple):
    """A batch that was trained. loss: sum of its losses before the update. num_edges: its edges."""

    loss: float
    num_edges: int


class BatchTrainer(Protocol):
    """Trains the batches of a phase. Relations are trained where it computes."""

    def begin(self, edges: PhaseEdges) -> None:
        """Begin a phase."""

    def train(self, number: int, lr_share: float) -> Trained:
        """Train a batch of the phase, by its number. If its loss is not finite, nothing is updated."""

    def end(self) -> None:
        """End a phase, whose memory is free again."""

    def take_relations(self) -> None:
        """Take the relations as they are in memory now."""

    def give_relations(self) -> None:
        """Bring the relations in memory up to date."""


class HostTrainer:
    """Trains in memory; see BatchTrainer. relations: in memory, trained in place."""

    def __init__(self, parts: EmbeddingParts, slots: HostSlots, relations: Table | None) -> None:
        self._parts = parts
        self._step = Step(StepOptions(**parts.config.step_options()), Table(slots.values, slots.squares), relations)
        self._begun: tuple[PhaseEdges, NDArray[np.int64], NegativeSampler] | None = None

    def begin(self, edges: PhaseEdges) -> None:
        """See BatchTrainer."""
        order = shuffled(len(edges.edges), self._parts.config.seed, edges.pass_number, edges.phase.number)
        self._begun = edges, order, sampler_of(self._parts, edges.phase)

    def train(self, number: int, lr_share: float) -> Trained:
        """See BatchTrainer."""
        assert self._begun is not None, "begin() is called first"
        parts, config, (phase_edges, order, sampler) = self._parts, self._parts.config, self._begun
        start, key = number * config.batch_size, batch_key(phase_edges, number)
        batch = phase_edges.edges.take(order[start : start + config.batch_size])
        negatives = sampler.draw(shape_of(parts, len(batch)), batch, key, parts.buffer.base)
        known = None
        if phase_edges.known is not None:
            rows = np.concatenate([batch.sources, batch.destinations, negatives.reshape(-1)])
            relations = None if batch.relations is None else torch.from_numpy(batch.relations)
            known = phase_edges.known.of_batch(torch.from_numpy(parts.buffer.places(rows)), relations, len(batch))
        draws = partial(generator, config.seed, Draw.DROPOUT, *key)
        fixed = fixed_rows(parts, phase_edges.phase)
        return Trained(self._step.run(batch, negatives, draws, fixed, known, lr_share), len(batch))

    def end(self) -> None:
        """See BatchTrainer."""
        self._begun = None

    def take_relations(self) -> None:
        """See BatchTrainer: they are trained where they are."""

    give_relations = take_relations


def sampler_of(parts: EmbeddingParts, phase: Phase) -> NegativeSampler:
    """Return the sampler of a phase's negatives."""
    config = parts.config
    return NegativeSampler(parts.layout, phase.partitions, config.degree_negatives, config.seed)


def shape_of(parts: EmbeddingParts, num_edges: int) -> tuple[int, int, int]:
    """Return the shape of a batch's negatives: sides, chunks, negatives."""
    return 2, -(-num_edges // parts.config.chunk_size), parts.config.negatives


def batch_key(edges: PhaseEdges, number: int) -> tuple[int, int]:
    """Return the key of a batch's draws."""
    return edges.pass_number, edges.phase.number << 32 | number


def fixed_rows(parts: EmbeddingParts, phase: Phase) -> list[range]:
    """Return the rows of partitions that are being written, which provide negatives and must not change."""
    bases = [parts.buffer.base(partition) for partition in phase.gone if partition in phase.partitions]
    return [range(base, base + parts.layout.stride_rows) for base in bases]
