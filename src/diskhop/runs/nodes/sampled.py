"""Training on sampled neighbours: plans, packs batches ahead where that pays, and feeds them from a pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from diskhop._native import keyed_permutation
from diskhop.budget import Budget
from diskhop.config.sampled import SampledConfig
from diskhop.config.sampler import MARIUS
from diskhop.config.train import IGNORE
from diskhop.dataset.dataset import Dataset
from diskhop.nn.dry_run import measure_step_seconds
from diskhop.nn.models import NORMALISING, Block, Network, build_model
from diskhop.nn.reproducible import reproducible
from diskhop.pipeline.ahead import MakePass
from diskhop.pipeline.batch import MiniBatch, Pass, Prepare
from diskhop.pipeline.edge_weights import EdgeWeights, OpenWeights
from diskhop.pipeline.norms import NormColumns
from diskhop.pipeline.pack_steps import Samples
from diskhop.pipeline.pipeline import Pipeline, open_pipeline
from diskhop.pipeline.transfer import Destination, DeviceCopies
from diskhop.planning.workload import Workload
from diskhop.plans import PreparedBytes
from diskhop.protocols import Purpose, SampledBatch
from diskhop.runs.callbacks import Callback
from diskhop.runs.devices import device_errors, device_of, device_row_bytes, held_by_device, with_device
from diskhop.runs.feeds import Batches, Feed, PreparedRun
from diskhop.runs.nodes.clusters import with_clusters
from diskhop.runs.nodes.delivery import DeviceBatch, delivered_on
from diskhop.runs.nodes.norms import prepare_norms
from diskhop.runs.nodes.packing import prepare, run_samples
from diskhop.runs.nodes.samplers import chooses_nodes, eval_sampler, normalises_by_graph, train_pass
from diskhop.runs.nodes.subgraphs import ADDED, SubgraphBatch, TrainingNodes
from diskhop.runs.nodes.task import NodeTask
from diskhop.runs.nodes.views import BatchView, BatchViews
from diskhop.runs.nodes.workload import planned_config, training_workload
from diskhop.runs.passes import RunPass, left_of
from diskhop.runtime.ranks import ONE, Ranks
from diskhop.sampling.seeds import SplitSeeds, count_batches

ResultT = TypeVar("ResultT")

# The state of a seed, its resident partitions, and the order of both.
_BYTES_PER_ARRANGED = 32
_REUSE_REASON = (
    "Samples: drawn once and reused (every epoch has the first epoch's batches in another order, "
    "which changes what is drawn)"
)


def prepare_sampled(
    dataset: Dataset, config: SampledConfig, task: NodeTask, budget: Budget, callback: Callback
) -> PreparedRun:
    """Plan, and pack batches ahead where that pays. Raises as packing's prepare()."""
    if config.features:
        dataset = dataset.with_made_features(config.features, config.seed)
    dataset, steps = with_clusters(dataset, config, budget, callback.prepared)
    workload = sampled_workload(dataset, config, task)
    samples, ordering = _order_samples(config, task, dataset.num_nodes)
    preparation = prepare(dataset, config, workload, samples, budget, callback)
    plan, device = preparation.plan, device_of(config)
    if config.reuse:
        plan = replace(plan, reasons=(*plan.reasons, _REUSE_REASON))
    plan = with_device(plan, device)
    planned = planned_config(config, plan)

    weights = edge_weights_of(dataset, config)
    norms, counting = prepare_norms(dataset, config, plan, budget, callback) if config.sample_coverage else (None, [])

    @contextmanager
    def open_feed(model: Network) -> Iterator[Feed]:
        with ExitStack() as held:
            for name, num_bytes in _held_by_feed(dataset, config, weights, len(task.seeds.train)).items():
                held.enter_context(budget.reserve(name, num_bytes))
            copies = None if device is None else DeviceCopies(device)
            expected = workload.seed_sets[0]
            pipeline = held.enter_context(open_pipeline(dataset, plan, budget, expected=expected, copies=copies))
            opened = None if weights is None else weights.open(pipeline.engine, plan.max_gap_bytes)
            training = None
            if chooses_nodes(config):
                columns = NormColumns(dataset, config.memory_bytes)
                of_run = None if norms is None else columns.open(norms, pipeline.engine, plan.max_gap_bytes)
                training = TrainingNodes(task.seeds.train, dataset.num_nodes, of_run)
            destination = None
            if copies is not None:
                assert task.labels is not None, "a task without labels is only planned"
                destination = delivered_on(copies, task.labels)
            yield SampledFeed(pipeline, task.seeds, planned, model.uses_degrees, opened, training, destination)

    return PreparedRun(
        config=planned,
        plan=plan,
        make_model=lambda: make_network(dataset, planned),
        open=open_feed,
        facts={"reuse": config.reuse},
        preparation=preparation.after([*steps, *ordering, *counting], config.epochs).to_dict(),
        device=device,
    )


def _order_samples(config: SampledConfig, task: NodeTask, num_nodes: int) -> tuple[Samples, list[dict[str, Any]]]:
    """Return the batches of a run, and the work of ordering partitions, as entries of result.json."""
    started = time.perf_counter()
    samples = run_samples(config, task.seeds.train, num_nodes)
    if config.sampler != MARIUS:
        return samples, []
    seconds = time.perf_counter() - started
    return samples, [{"step": "order partitions", "seconds": seconds, "bytes_read": 0, "bytes_written": 0}]


def sampled_workload(dataset: Dataset, config: SampledConfig, task: NodeTask) -> Workload:
    """Describe a run for the planner, which may measure a step of the model on a batch."""
    weights = edge_weights_of(dataset, config)
    held = {**task.held, **_held_by_feed(dataset, config, weights, len(task.seeds.train))}
    measure = step_measure(dataset, config, partial(make_network, dataset, config))
    workload = training_workload(config, task.seeds, held, dataset.num_nodes, measure)
    values = PreparedBytes() if weights is None else weights.added
    if chooses_nodes(config):
        values = values.plus(ADDED)
    if config.sample_coverage:
        values = values.plus(NormColumns(dataset, config.memory_bytes).added)
    return replace(workload, values=values, device_bytes=device_row_bytes(config))


def step_measure(
    dataset: Dataset, config: SampledConfig, make_model: Callable[[], nn.Module]
) -> Callable[[SampledBatch], float] | None:
    """Return what measures the seconds of a step of a model on a batch; None for a graph without features."""
    if not dataset.feature_dim:
        return None
    return partial(run_step, measure_step_seconds, dataset, config, make_model)


def run_step(
    measure: Callable[[Callable[[], nn.Module], float, Sequence[Any], torch.device | None], ResultT],
    dataset: Dataset,
    config: SampledConfig,
    make_model: Callable[[], nn.Module],
    batch: SampledBatch,
) -> ResultT:
    """Measure a model on a batch whose rows are made up. measure: see measure_step_seconds()."""
    dtype = torch.float32 if dataset.feature_dtype in ("", "int8") else getattr(torch, dataset.feature_dtype)
    device = device_of(config)
    x = torch.full((batch.num_nodes, dataset.feature_dim or dataset.made_features.dim), 0.01, dtype=dtype)
    in_degrees = torch.full((batch.num_nodes,), 2, dtype=torch.int64)
    block = Block.of(batch, in_degrees).mapped(lambda tensor: tensor.to(device))
    with reproducible(config.threads, device), device_errors(device, config):
        return measure(make_model, config.lr, (x.to(device), block), device)


def _held_by_feed(
    dataset: Dataset, config: SampledConfig, weights: EdgeWeights | None, num_train: int
) -> dict[str, int]:
    """Bytes that a feed holds besides the pipeline, by name."""
    held = {} if weights is None else dict(weights.reserved)
    if chooses_nodes(config):
        held["training nodes"] = dataset.num_nodes
    if config.sampler == MARIUS:
        held["resident partitions"] = _BYTES_PER_ARRANGED * num_train
    if config.sample_coverage:
        held |= NormColumns(dataset, config.memory_bytes).reserved
    return held | held_by_device(device_of(config))


def edge_weights_of(dataset: Dataset, config: SampledConfig) -> EdgeWeights | None:
    """Return the weights that a run uses; None for none."""
    if config.edge_weights == IGNORE:
        return None
    return EdgeWeights(dataset, config.memory_bytes, with_strengths=config.model in NORMALISING)


def make_network(dataset: Dataset, config: SampledConfig) -> Network:
    """Make the model of a run on a graph, with random parameters from torch's generator."""
    num_columns = dataset.feature_dim or dataset.made_features.dim
    return build_model(config, num_columns, dataset.num_outputs)


class SampledFeed:
    """Batches of a pipeline, with the fan-outs of a configuration.

    uses_degrees: whether the model reads in-degrees.
    weights: of the edges; None: they count the same.
    training: the training nodes, for a sampler that chooses the nodes of training batches; None for other samplers.
    destination: the device that batches are delivered on; None: they stay in memory.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        seeds: SplitSeeds,
        config: SampledConfig,
        uses_degrees: bool,
        weights: OpenWeights | None = None,
        training: TrainingNodes | None = None,
        destination: Destination | None = None,
    ) -> None:
        self._destination = destination
        self._weights = weights
        self._training = training
        self._pipeline = pipeline
        self._seeds = seeds
        self._config = config
        self._uses_degrees = uses_degrees

    def train(
        self, epoch: int, share: Ranks = ONE, following: RunPass | None = None, done: Collection[int] = ()
    ) -> AbstractContextManager[Batches]:
        """See Feed. Where samples are reused, every epoch has the first epoch's batches."""
        wanted, make_following = self._train_pass(epoch, share, done), self._maker(following, share)
        if self._training is None:
            prepare = self._prepare(with_strengths=normalises_by_graph(self._config))
            return self._run(wanted, prepare, make_following)
        return self._run(wanted, self._training.prepare(self._weights), make_following, SubgraphBatch)

    def measure(
        self, purpose: Purpose, share: Ranks = ONE, following: RunPass | None = None
    ) -> AbstractContextManager[Batches]:
        """See Feed. Every epoch draws the same neighbours."""
        prepare = self._prepare(with_strengths=True)
        wanted, make_following = self._pass(RunPass(purpose, 0), share), self._maker(following, share)
        return self._run(wanted, prepare, make_following)

    def _run(
        self,
        wanted: Pass,
        prepare: Prepare | None,
        following: MakePass | None,
        view: Callable[[MiniBatch], BatchView] | None = None,
    ) -> AbstractContextManager[Batches]:
        """Start a pass. view: of batches that stay in memory; None: they are as the pipeline has them."""
        stream = self._pipeline.run(wanted, prepare, self._destination, following=following)
        if self._destination is not None:
            view = DeviceBatch
        return stream if view is None else BatchViews(stream, view)

    def _maker(self, following: RunPass | None, share: Ranks) -> MakePass | None:
        """Return what makes the next pass; None if it is unknown."""
        return None if following is None else partial(self._pass, following, share)

    def _pass(self, of: RunPass, share: Ranks) -> Pass:
        return self._train_pass(of.epoch, share) if of.purpose == Purpose.TRAIN else self._eval_pass(of.purpose, share)

    def _train_pass(self, epoch: int, share: Ranks, done: Collection[int] = ()) -> Pass:
        config, training = self._config, self._training
        is_by_graph = normalises_by_graph(config)
        sampled_epoch = 0 if config.reuse else epoch
        wanted = train_pass(config, self._seeds.train, self._pipeline.dataset.num_nodes, sampled_epoch)
        numbers = wanted.numbers if sampled_epoch == epoch else self._reuse_order(len(wanted.numbers), epoch)
        return replace(
            wanted,
            numbers=share.share(left_of(numbers, done)),
            with_in_degrees=(is_by_graph and self._uses_degrees) or (training is not None and training.has_norms),
        )

    def _eval_pass(self, purpose: Purpose, share: Ranks) -> Pass:
        ids = self._seeds.valid if purpose == Purpose.VALID else self._seeds.test
        assert ids is not None
        return Pass(
            seeds=ids,
            numbers=share.share(range(count_batches(len(ids), self._config.eval_batch_size))),
            batch_size=self._config.eval_batch_size,
            sampler=eval_sampler(self._config),
            seed=self._config.seed,
            purpose=purpose,
            epoch=0,
            with_in_degrees=self._uses_degrees,
        )

    def forward(self, model: Network, batch: MiniBatch | SubgraphBatch | DeviceBatch) -> Tensor:
        """See Feed."""
        if isinstance(batch, DeviceBatch):
            delivered = batch.delivered
            outputs: Tensor = model(batch.mini.x, delivered.block)
            return outputs[: len(delivered.nodes)] if delivered.places is None else outputs[delivered.places]
        if isinstance(batch, SubgraphBatch):
            part, mini = batch.part, batch.mini
            block = Block.of(mini.sampled, mini.in_degrees, _rows_of(mini), part.weights, part.importance)
            return model(mini.x, block)[torch.from_numpy(part.places)]  # type: ignore[no-any-return]
        scores: Tensor = model(batch.x, Block.of(batch.sampled, batch.in_degrees, _rows_of(batch), batch.prepared))
        # Blocks with edges of all nodes give scores for all nodes.
        return scores[: batch.sampled.num_seeds]

    def _prepare(self, *, with_strengths: bool) -> Prepare | None:
        """Return what reads the weights of a batch while it is prefetched."""
        weights = self._weights
        if weights is None:
            return None
        return lambda sampled, _x: weights.of(sampled, with_strengths=with_strengths)

    def _reuse_order(self, num_batches: int, epoch: int) -> Sequence[int]:
        """Return the numbers of the first epoch's batches in the order of a later epoch."""
        order: list[int] = keyed_permutation(num_batches, self._config.seed, int(Purpose.BATCH_ORDER), epoch).tolist()
        return order


def _rows_of(batch: MiniBatch) -> Tensor | None:
    return None if batch.rows is None else torch.from_numpy(batch.rows.astype(np.int32))
