"""Batches of a graph with types, as a typed model takes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.batches.typed import NodePart, TypedBatch, split_types
from diskhop.config.typed import TypedConfig
from diskhop.dataset.made_features import DEGREE, MadeFeatures
from diskhop.dataset.type_map import TypeMap
from diskhop.nn.matmul.placed import PlacedRows
from diskhop.nn.typed.block import TypedBlock
from diskhop.nn.typed.network import TypeRows
from diskhop.pipeline.batch import InFlightBatch, MiniBatch, Pass, TypedFeatures
from diskhop.pipeline.device_rows import copy_typed
from diskhop.pipeline.made_rows import make_rows
from diskhop.pipeline.pipeline import Pipeline
from diskhop.pipeline.transfer import Destination, DeviceCopies, Move
from diskhop.protocols import NodeRows, Purpose, SampledBatch
from diskhop.runs.feeds import Batches
from diskhop.runs.nodes.delivery import Delivered, DeviceBatch
from diskhop.runs.nodes.views import BatchViews
from diskhop.runs.passes import RunPass, left_of
from diskhop.runs.typed.samplers import eval_sampler, train_sampler
from diskhop.runtime.ranks import ONE, Ranks
from diskhop.sampling.seeds import SplitSeeds, count_batches, shuffled_seeds


class TypedInputs(NamedTuple):
    """A batch by types. parts: its nodes. block: its edges, for the layers."""

    parts: dict[str, NodePart]
    block: TypedBlock

    def mapped(self, function: Callable[[Tensor], Tensor]) -> TypedInputs:
        """Return the batch with a function applied to each tensor, such as one that copies it to a device."""
        return TypedInputs(self.parts, self.block.mapped(function))


def inputs_of(sampled: SampledBatch, types: TypeMap) -> TypedInputs:
    """Split a batch by types."""
    typed: TypedBatch = split_types(sampled, types)
    return TypedInputs(dict(typed.parts), TypedBlock.of(typed))


def rows_by_type(
    batch: MiniBatch | InFlightBatch, inputs: TypedInputs, made: Mapping[str, MadeFeatures]
) -> dict[str, Tensor]:
    """Return the features of a batch that are in memory, by type. made: what stands in for those of some types."""
    assert batch.x_by_type is not None
    x = dict(batch.x_by_type)
    for name, each in made.items():
        part = inputs.parts[name]
        degrees = None if batch.in_degrees is None else batch.in_degrees[torch.from_numpy(part.places)]
        x[name] = make_rows(each, part.node_ids, degrees)
    return x


class TypedDelivery(NamedTuple):
    """Delivery of batches on a device. copies: to it. labels: of the target's nodes."""

    copies: DeviceCopies
    labels: NDArray[Any]


class TypedFeed:
    """Batches of a pipeline; see runs/feeds.Feed.

    seeds: merged rows of the target's nodes. first_row: the first merged row of the target.
    made: features that stand in for those of some node types.
    delivery: brings batches to a device; None: they stay in memory.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        seeds: SplitSeeds,
        first_row: int,
        config: TypedConfig,
        made: Mapping[str, MadeFeatures],
        delivery: TypedDelivery | None = None,
    ) -> None:
        types = pipeline.dataset.types
        assert types is not None
        self._types: TypeMap = types
        self._pipeline = pipeline
        self._seeds = seeds
        self._first_row = first_row
        self._config = config
        self._made = made
        self._destination = None if delivery is None else Destination(delivery.copies, self._move_by(delivery.labels))
        self._needs_degrees = any(each.kind == DEGREE for each in made.values())

    def train(
        self, epoch: int, share: Ranks = ONE, following: RunPass | None = None, done: Collection[int] = ()
    ) -> AbstractContextManager[Batches]:
        """See Feed."""
        return self._run(self._train_pass(epoch, share, done), share, following)

    def measure(
        self, purpose: Purpose, share: Ranks = ONE, following: RunPass | None = None
    ) -> AbstractContextManager[Batches]:
        """See Feed. Every epoch draws the same neighbours."""
        return self._run(self._eval_pass(purpose, share), share, following)

    def _run(self, wanted: Pass, share: Ranks, following: RunPass | None) -> AbstractContextManager[Batches]:
        make_following = None if following is None else partial(self._pass, following, share)
        stream = self._pipeline.run(wanted, self._prepare, self._destination, following=make_following)
        return stream if self._destination is None else BatchViews(stream, DeviceBatch)

    def _pass(self, of: RunPass, share: Ranks) -> Pass:
        return self._train_pass(of.epoch, share) if of.purpose == Purpose.TRAIN else self._eval_pass(of.purpose, share)

    def _train_pass(self, epoch: int, share: Ranks, done: Collection[int] = ()) -> Pass:
        config = self._config
        seeds = shuffled_seeds(self._seeds.train, config.seed, epoch)
        numbers = range(count_batches(len(seeds), config.batch_size, config.max_batches))
        return Pass(
            seeds=seeds,
            numbers=share.share(left_of(numbers, done)),
            batch_size=config.batch_size,
            sampler=train_sampler(config),
            seed=config.seed,
            purpose=Purpose.TRAIN,
            epoch=epoch,
            first_row=self._first_row,
            with_in_degrees=self._needs_degrees,
        )

    def _eval_pass(self, purpose: Purpose, share: Ranks) -> Pass:
        config = self._config
        seeds = self._seeds.valid if purpose == Purpose.VALID else self._seeds.test
        assert seeds is not None
        return Pass(
            seeds=seeds,
            numbers=share.share(range(count_batches(len(seeds), config.eval_batch_size))),
            batch_size=config.eval_batch_size,
            sampler=eval_sampler(config),
            seed=config.seed,
            purpose=purpose,
            epoch=0,
            first_row=self._first_row,
            with_in_degrees=self._needs_degrees,
        )

    def forward(self, model: Any, batch: MiniBatch | DeviceBatch) -> Tensor:
        """See Feed."""
        if isinstance(batch, DeviceBatch):
            on_device: Tensor = model(batch.mini.x_by_type, batch.delivered.block)
            return on_device[: len(batch.nodes)]
        rows = rows_by_type(batch, batch.prepared, self._made)
        x: dict[str, TypeRows] = dict(rows)
        for name, places in batch.rows_by_type.items():
            x[name] = PlacedRows(rows[name], torch.tensor(places))
        outputs: Tensor = model(x, batch.prepared)
        return outputs[: batch.sampled.num_seeds]

    def _move_by(self, labels: NDArray[Any]) -> Move:
        """Return what copies a batch to a device. labels: of the target's nodes."""

        def move(batch: InFlightBatch, copies: DeviceCopies) -> None:
            x = rows_by_type(batch, batch.prepared, self._made)
            batch.x_by_type = copy_typed(x, batch.staged_by_type, copies)
            nodes = NodeRows(batch.sampled.node_ids[: batch.sampled.num_seeds] - self._first_row)
            batch.in_degrees = None
            batch.prepared = Delivered(
                nodes=nodes,
                labels=copies.copy(torch.from_numpy(labels[nodes])),
                block=batch.prepared.mapped(copies.copy),
                places=None,
                loss_weights=None,
            )

        return move

    def _prepare(self, sampled: SampledBatch, _x: TypedFeatures) -> TypedInputs:
        return inputs_of(sampled, self._types)
