"""Training on a device: edges of a phase are copied there, batches are made and trained there (Legend, section 3)."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from diskhop.budget import format_bytes
from diskhop.config.embed import EmbedConfig
from diskhop.embedding.device.draws import DeviceNegatives, device_order
from diskhop.embedding.device.slots import DeviceSlots
from diskhop.embedding.device.step import DeviceEdges, DeviceStep, DeviceTable
from diskhop.embedding.step.draws import Draw, generator
from diskhop.embedding.step.gradients import StepOptions
from diskhop.embedding.step.known_edges import KnownBatch, KnownEdges
from diskhop.embedding.step.step import Table
from diskhop.errors import TrainingError
from diskhop.pipeline.transfer import DeviceCopies
from diskhop.runs.embedding.parts import EmbeddingParts
from diskhop.runs.embedding.trainers import (
    PhaseEdges,
    Trained,
    batch_key,
    fixed_rows,
    sampler_of,
    shape_of,
)


class _Begun(NamedTuple):
    phase: PhaseEdges
    edges: DeviceEdges
    order: Tensor
    negatives: DeviceNegatives
    offsets: Tensor


class _Known(NamedTuple):
    """Edges that negatives must not form, in memory and on the device; None: they may form any.

    Those in memory end when the next ones are read, which have room for one table.
    """

    here: weakref.ref[KnownEdges] | None
    there: KnownEdges | None


class DeviceTrainer:
    """Trains on the device of the slots; see BatchTrainer.

    relations: in memory; give_relations() changes them. copies: of this object alone.
    """

    def __init__(
        self, parts: EmbeddingParts, slots: DeviceSlots, relations: Table | None, copies: DeviceCopies
    ) -> None:
        self._parts = parts
        self._copies = copies
        self._relations = relations
        self._there: DeviceTable | None = None
        with batch_errors(copies.device, parts.config):
            if relations is not None:
                values, squares = (
                    copies.copy(torch.from_numpy(each)) for each in (relations.values, relations.squares)
                )
                copies.finish().wait()
                self._there = DeviceTable(values, squares)
            nodes = DeviceTable(slots.values, slots.squares)
            self._step = DeviceStep(StepOptions(**parts.config.step_options()), nodes, self._there)
        self._begun: _Begun | None = None
        self._known: _Known | None = None

    def begin(self, edges: PhaseEdges) -> None:
        """See BatchTrainer."""
        parts, config, device, rows = self._parts, self._parts.config, self._copies.device, edges.edges
        with batch_errors(device, config):
            here = None if self._known is None or self._known.here is None else self._known.here()
            if self._known is None or here is not edges.known:
                # All training edges: the same until nodes change their places.
                self._known = None
                there = None if edges.known is None else edges.known.mapped(self._copies.copy)
                self._known = _Known(None if edges.known is None else weakref.ref(edges.known), there)
            sources, destinations = (
                self._copies.copy(torch.from_numpy(each)) for each in (rows.sources, rows.destinations)
            )
            relations = None if rows.relations is None else self._copies.copy(torch.from_numpy(rows.relations))
            self._copies.finish().wait()
            edges_there = DeviceEdges(sources, relations, destinations)
            order = device_order(len(rows), config.seed, edges.pass_number, edges.phase.number, device)
            negatives = DeviceNegatives(sampler_of(parts, edges.phase), parts.buffer.base, device)
            offsets = torch.from_numpy(parts.buffer.offsets()).to(device)
        self._begun = _Begun(edges, edges_there, order, negatives, offsets)

    def train(self, number: int, lr_share: float) -> Trained:
        """See BatchTrainer."""
        assert self._begun is not None, "begin() is called first"
        parts, config, begun = self._parts, self._parts.config, self._begun
        start, key = number * config.batch_size, batch_key(begun.phase, number)
        with batch_errors(self._copies.device, config):
            batch = begun.edges.take(begun.order[start : start + config.batch_size])
            shape = shape_of(parts, len(batch))
            negatives = begun.negatives.draw(shape, batch.sources, batch.destinations, key)
            draws = partial(generator, config.seed, Draw.DROPOUT, *key)
            fixed = fixed_rows(parts, begun.phase.phase)
            loss = self._step.run(batch, negatives, draws, fixed, self._known_of(batch, negatives), lr_share)
        return Trained(loss, len(batch))

    def _known_of(self, batch: DeviceEdges, negatives: Tensor) -> KnownBatch | None:
        """Return the known answers of a batch; None where negatives may form any edge."""
        assert self._begun is not None and self._known is not None, "begin() is called first"  # noqa: PT018
        if self._known.there is None:
            return None
        rows = torch.cat([batch.sources, batch.destinations, negatives.flatten()])
        places = rows + self._begun.offsets[rows // self._parts.layout.stride_rows]
        return self._known.there.of_batch(places, batch.relations, len(batch))

    def end(self) -> None:
        """See BatchTrainer."""
        self._begun = None

    def take_relations(self) -> None:
        """See BatchTrainer."""
        self._copies.wait_for(self._copies.mark())
        for here, there in self._tables():
            self._copies.send(here, there)
        self._copies.finish().wait()

    def give_relations(self) -> None:
        """See BatchTrainer."""
        self._copies.wait_for(self._copies.mark())
        for here, there in self._tables():
            self._copies.fetch(there, here)

    def _tables(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the relations' tensors in memory and on the device."""
        if self._relations is not None and self._there is not None:
            yield torch.from_numpy(self._relations.values), self._there.values
            yield torch.from_numpy(self._relations.squares), self._there.squares


@contextmanager
def batch_errors(device: torch.device | None, config: EmbedConfig) -> Iterator[None]:
    """Say in one line that a batch does not fit the memory of a device."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        fewer = max(1, config.batch_size // 2)
        raise TrainingError(
            f"{device}: batches of {config.batch_size} edges do not fit its memory next to partitions "
            f"(--device-memory {format_bytes(config.device_memory_bytes)}); use --batch-size {fewer}, a smaller "
            "--device-memory with more --partitions, or --device cpu"
        ) from error
