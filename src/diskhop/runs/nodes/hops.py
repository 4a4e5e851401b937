"""Training on hop tables: propagates features unless tables exist, places them, and feeds rows without sampling."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.config.hop import ON_DEVICE, HopConfig
from diskhop.config.options import AUTO
from diskhop.counters import FetchCounts, WaitSeconds
from diskhop.dataset.dataset import Dataset
from diskhop.disk.probe import remembered_model
from diskhop.hops.make.propagate import Propagated, propagate
from diskhop.hops.read.placement import DeviceRoom, Placement, device_bytes
from diskhop.hops.tables import HopTables
from diskhop.io.engine import open_engine
from diskhop.loaders.destination import memory_for_rows
from diskhop.loaders.hop_batches import HopBatches
from diskhop.loaders.hops import HopLoader
from diskhop.nn.dry_run import measure_step
from diskhop.nn.models import HopNetwork, build_hop_model, hops_read
from diskhop.pipeline.device_report import measure_copy_rate
from diskhop.pipeline.peers import shared_memory
from diskhop.planning.hops.costs import hop_step_seconds, predict_hops
from diskhop.planning.hops.place import _MEASURED_ROWS, hop_plan, place_hops, propagation_spec
from diskhop.protocols import NodeRows, Purpose
from diskhop.runs.callbacks import Callback
from diskhop.runs.devices import device_errors, device_of
from diskhop.runs.feeds import Feed, PreparedRun
from diskhop.runs.nodes.task import NodeTask
from diskhop.runs.nodes.workload import HELD_ONCE
from diskhop.runs.passes import RunPass, left_of
from diskhop.runtime.ranks import ONE, Ranks
from diskhop.sampling.seeds import SplitSeeds, count_batches

# Makes the hop tables of a configuration, or finds them: (dataset, config, budget, engine, callback).
MakeTables = Callable[[Dataset, Any, Budget, Engine, Callback], Propagated]


def prepare_hops(
    dataset: Dataset,
    config: HopConfig,
    task: NodeTask,
    budget: Budget,
    callback: Callback,
    make_tables: MakeTables | None = None,
) -> PreparedRun:
    """Propagate features unless tables exist, and choose where to train from. Raises as propagate(); BudgetError.

    make_tables: makes the tables; None: by the operators of the configuration.
    """
    budget.require(task.held, HELD_ONCE)
    opened = open_engine(config.engine)
    with ExitStack() as held:
        for name, num_bytes in task.held.items():
            held.enter_context(budget.reserve(name, num_bytes, is_shared=name in HELD_ONCE))
        propagated = (make_tables or _propagate)(dataset, config, budget, opened.engine, callback)
        tables = propagated.tables
        which = hops_read(config.model, tables.num_tables)
        num_outputs = dataset.num_outputs
        model_bytes, device = 0, device_of(config)
        if config.placement == AUTO and device is None:
            batch = torch.zeros(len(which), min(config.batch_size, tables.num_rows), tables.dim)
            model_bytes = measure_step(partial(build_hop_model, config, tables.dim, len(which), num_outputs), batch)
        room = None
        if device is not None:
            needed = device_bytes(tables.shape, len(which), config.batch_size)
            room = DeviceRoom(needed, config.device_memory_bytes or memory_for_rows(device))
        reserved, placement = place_hops(config, task.seeds, tables.shape, len(which), model_bytes, budget, device=room)
    held_too = {**task.held, **reserved}
    path, shape = str(tables.path), tables.shape
    plan = hop_plan(config, path, shape, len(which), placement, held_too, HELD_ONCE, budget, opened)
    with device_errors(device, config):
        step_seconds = hop_step_seconds(dataset, config, tables.shape, len(which), device)
    model = remembered_model(tables.path, opened.engine.name)
    num_train = len(task.seeds.train)
    rate = 0.0 if device is None else measure_copy_rate(device)
    predicted = predict_hops(config, tables.shape, len(which), placement, num_train, step_seconds, model, budget, rate)
    plan = replace(plan, predicted=predicted)
    planned = replace(config, engine=plan.engine, shuffle=plan.shuffle)
    if plan.placement != ON_DEVICE:  # a run may be resumed without one
        planned = replace(planned, placement=plan.placement)

    @contextmanager
    def open_feed(_model: HopNetwork) -> Iterator[Feed]:
        with (
            budget.reserve(_MEASURED_ROWS, reserved[_MEASURED_ROWS]),
            _open_loader(tables, which, task.seeds, planned, placement, budget, opened.engine, device) as loader,
        ):
            yield HopFeed(loader, task.seeds, planned.max_batches)

    steps = propagated.steps
    seconds = sum(step["seconds"] for step in steps)
    return PreparedRun(
        config=planned,
        plan=plan,
        make_model=partial(build_hop_model, planned, tables.dim, len(which), num_outputs),
        open=open_feed,
        preparation={"preparation": steps, "preparation_seconds_per_epoch": seconds / config.epochs} if steps else {},
        device=device,
    )


def _propagate(dataset: Dataset, config: HopConfig, budget: Budget, engine: Engine, callback: Callback) -> Propagated:
    """Make the hop tables of a configuration, or find them."""
    return propagate(
        dataset,
        propagation_spec(dataset, config),
        budget,
        disk=config.disk_bytes or None,
        scratch=config.scratch or None,
        threads=config.threads,
        engine=engine,
        progress=callback.prepared,
        on_plan=lambda plan: callback.announced(f"Propagating before training: {plan}"),
        log=callback.announced,
    )


def _open_loader(
    tables: HopTables,
    which: Sequence[int],
    seeds: SplitSeeds,
    config: HopConfig,
    placement: Placement,
    budget: Budget,
    engine: Engine,
    device: torch.device | None,
) -> HopLoader:
    """Open the loader of the training nodes' rows."""
    return HopLoader(
        tables,
        node_rows=seeds.train,
        batch_size=config.batch_size,
        shuffle=placement.shuffle,
        chunk_rows=config.chunk_rows,
        which=which,
        place=placement.place,
        memory=budget,
        engine=engine,
        threads=config.threads,
        seed=config.seed,
        device=device,
        shared_memory=shared_memory(budget),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """See feeds.Batch. x: (tables, batch, dim); valid until the next batch is requested, which reuses the memory."""

    number: int
    nodes: NodeRows
    x: Tensor
    counts: FetchCounts
    waits: WaitSeconds
    sample_seconds: float = 0.0


class _Pass:
    """See feeds.Batches."""

    def __init__(self, batches: HopBatches) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[_Batch]:
        for batch in self._batches:
            waits = WaitSeconds(reading=batch.stall_seconds)
            yield _Batch(batch.number, batch.node_rows, batch.x, batch.counts, waits)


class HopFeed:
    """Batches of a loader of the training nodes. max_batches: per epoch of training, 0 for all."""

    def __init__(self, loader: HopLoader, seeds: SplitSeeds, max_batches: int) -> None:
        self._loader = loader
        self._measured = {
            purpose: loader.rows_of_node_rows(rows)
            for purpose, rows in ((Purpose.VALID, seeds.valid), (Purpose.TEST, seeds.test))
            if rows is not None
        }
        self._max_batches = max_batches

    @contextmanager
    def train(
        self, epoch: int, share: Ranks = ONE, _following: RunPass | None = None, done: Collection[int] = ()
    ) -> Iterator[_Pass]:
        """See Feed. Nothing is prepared for the next pass."""
        loader = self._loader
        numbers = range(count_batches(len(loader.rows), loader.batch_size, self._max_batches))
        with loader.run(epoch=epoch, numbers=share.share(left_of(numbers, done))) as batches:
            yield _Pass(batches)

    @contextmanager
    def measure(self, purpose: Purpose, share: Ranks = ONE, _following: RunPass | None = None) -> Iterator[_Pass]:
        """See Feed."""
        rows = self._measured[purpose]
        numbers = range(count_batches(len(rows), self._loader.batch_size))
        with self._loader.run(rows, shuffle="none", numbers=share.share(numbers)) as batches:
            yield _Pass(batches)

    def forward(self, model: HopNetwork, batch: _Batch) -> Tensor:
        """See Feed."""
        scores: Tensor = model(batch.x)
        return scores
