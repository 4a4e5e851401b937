"""Ways to train on hop tables side by side: from memory or from the disk, propagated before if they are not there."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from diskhop.budget import Budget
from diskhop.config import AUTO, HopConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError
from diskhop.io.device_model import DeviceModel
from diskhop.io.engine import open_engine
from diskhop.models import build_hop_model, hops_read
from diskhop.plan import HopPlan, Prediction
from diskhop.planning.options import Option, Ranking, rank
from diskhop.planning.planner import measure_copy_seconds
from diskhop.propagation.hop_table import TableShape
from diskhop.propagation.placement import Placement
from diskhop.propagation.propagate import find_hop_tables, plan_tables, scratch_folder_of
from diskhop.training.dry_run import measure_step_seconds
from diskhop.training.hops import hop_plan, place_hops, propagation_spec
from diskhop.training.process import reproducible
from diskhop.training.seeds import NodeTask

Place = Literal["memory", "disk"]
_PLACES: tuple[Place, ...] = ("memory", "disk")


def rank_placements(
    dataset: Dataset, config: HopConfig, task: NodeTask, budget: Budget, device: DeviceModel
) -> Ranking[HopPlan]:
    """The configuration with tables in memory or on the disk. Raises ConfigError; BudgetError where neither fits."""
    scratch = Path(config.scratch) if config.scratch else None
    spec = propagation_spec(dataset, config)
    tables = find_hop_tables(dataset, spec, scratch, budget)
    preparation_seconds, work_bytes = 0.0, 0
    if tables is None:
        made, plan = plan_tables(dataset, spec, budget, threads=config.threads, device=device)
        shape, num_tables = made.kept_shape, made.num_tables
        path, preparation_seconds, work_bytes = scratch_folder_of(dataset, scratch), plan.seconds, plan.work_bytes
    else:
        shape, num_tables, path = tables.shape, tables.num_tables, tables.path
    num_read = len(hops_read(config.model, num_tables))
    step_seconds = _step_seconds(dataset, config, shape, num_read)
    engine = open_engine(config.engine)
    refused: dict[str, str] = {}
    found: list[Option[HopPlan]] = []
    smallest: BudgetError | None = None
    for place in _PLACES:
        if config.placement not in (AUTO, place):
            refused[place] = f"--placement {config.placement} was asked for"
            continue
        try:
            reserved, placement = place_hops(replace(config, placement=place), task.seeds, shape, num_read, 0, budget)
        except BudgetError as error:
            refused[place], smallest = str(error), error
            continue
        held = {**task.held, **reserved}
        predicted = _predict(config, shape, num_read, placement, len(task.seeds.train), step_seconds, device, budget)
        predicted = replace(predicted, preparation_seconds=preparation_seconds, disk_bytes=work_bytes)
        hops = hop_plan(config, str(path), shape, num_read, placement, held, engine)
        found.append(Option(name=place, plan=hops, predicted=predicted, simplicity=_PLACES.index(place)))
    if not found:
        assert smallest is not None, "only a budget keeps tables from both places"
        raise smallest
    return rank(found, refused, config.epochs, "hop tables in")


def _step_seconds(dataset: Dataset, config: HopConfig, shape: TableShape, num_tables: int) -> float:
    x = torch.full((num_tables, min(config.batch_size, shape.num_rows), shape.dim), 0.01)
    num_outputs = dataset.num_tasks or dataset.num_classes
    with reproducible(config.threads):
        make_model = partial(build_hop_model, config, shape.dim, num_tables, num_outputs)
        return measure_step_seconds(make_model, config.lr, (x,))


def _predict(
    config: HopConfig,
    shape: TableShape,
    num_tables: int,
    placement: Placement,
    num_train: int,
    step_seconds: float,
    device: DeviceModel,
    budget: Budget,
) -> Prediction:
    num_batches = -(-num_train // config.batch_size)
    num_batches = min(num_batches, config.max_batches or num_batches)
    num_rows = min(num_batches * config.batch_size, num_train)
    num_bytes = num_rows * num_tables * shape.row_bytes
    copy_seconds = measure_copy_seconds(shape.row_bytes, budget.available_bytes) * num_rows * num_tables
    compute_seconds = num_batches * step_seconds
    cores_seconds = compute_seconds + copy_seconds / config.threads
    rate = device.sequential_read_bytes_per_second
    if placement.place == "memory":
        return Prediction(
            epoch_seconds=cores_seconds,
            io_seconds=0.0,
            cores_seconds=cores_seconds,
            compute_seconds=compute_seconds,
            open_seconds=num_tables * shape.num_bytes / rate,
            hit_rate=1.0,
        )
    io_seconds = num_bytes / rate
    # The first batch is waited for, then one is read while the model has another (double buffering).
    first_seconds = io_seconds / max(1, num_batches)
    return Prediction(
        epoch_seconds=first_seconds + max(io_seconds, cores_seconds),
        io_seconds=io_seconds,
        cores_seconds=cores_seconds,
        compute_seconds=compute_seconds,
        reads=num_tables * -(-num_rows // config.chunk_rows),
        bytes_read=num_bytes,
    )
