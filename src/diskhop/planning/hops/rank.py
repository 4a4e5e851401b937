"""Ranking of the places of hop tables, a device, memory or disk, with the propagation of missing tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch

from diskhop.budget import Budget, format_bytes
from diskhop.config.hop import HopConfig
from diskhop.config.options import AUTO
from diskhop.dataset.dataset import Dataset
from diskhop.derived.scratch import scratch_path
from diskhop.disk.model import DiskModel
from diskhop.errors import BudgetError, ConfigError
from diskhop.hops.find import find_hop_tables
from diskhop.hops.make.prepare import plan_tables
from diskhop.hops.read.placement import DeviceRoom, Place, device_bytes
from diskhop.hops.tables import TableShape
from diskhop.io.engine import open_engine
from diskhop.nn.models import hops_read
from diskhop.pipeline.device_report import measure_copy_rate
from diskhop.planning.hops.costs import hop_step_seconds, predict_hops
from diskhop.planning.hops.place import hop_plan, place_hops, propagation_spec
from diskhop.planning.options import Option, Ranking, rank
from diskhop.plans import HopPlan
from diskhop.sampling.seeds import SplitSeeds

_PLACES: tuple[Place, ...] = ("device", "memory", "disk")


class PlannedDevice(NamedTuple):
    """The device that a run computes on. free_bytes: of its memory, which tables may take."""

    device: torch.device
    free_bytes: int


@dataclass(frozen=True, slots=True)
class TablesToRead:
    """Hop tables that a run reads.

    shape: layout of every table.
    num_tables: number of tables.
    path: their folder, or the folder that they will be in.
    seconds: predicted for building them; 0 for those that exist.
    work_bytes: disk space of building them.
    """

    shape: TableShape
    num_tables: int
    path: Path
    seconds: float = 0.0
    work_bytes: int = 0


def tables_by_operators(dataset: Dataset, config: HopConfig, budget: Budget, disk: DiskModel) -> TablesToRead:
    """Return the tables that a run by operators reads. Raises as plan_tables()."""
    scratch = Path(config.scratch) if config.scratch else None
    spec = propagation_spec(dataset, config)
    tables = find_hop_tables(dataset, spec, scratch, budget)
    if tables is not None:
        return TablesToRead(tables.shape, tables.num_tables, tables.path)
    made, plan = plan_tables(dataset, spec, budget, threads=config.threads, disk=disk)
    path = scratch_path(dataset.path, scratch)
    return TablesToRead(made.kept_shape, made.num_tables, path, plan.seconds, plan.work_bytes)


def rank_placements(
    dataset: Dataset,
    config: HopConfig,
    seeds: SplitSeeds,
    also_held: Mapping[str, int],
    held_once: Collection[str],
    budget: Budget,
    disk: DiskModel,
    tables: TablesToRead,
    device: PlannedDevice | None = None,
) -> Ranking[HopPlan]:
    """Rank the configuration with tables on the device, if there is one, in memory and on disk.

    dataset: of the labelled nodes. config: of a process. also_held: bytes of the budget that a run reserves besides, by
    name. held_once: names of those that all processes have in one copy. Raises ConfigError, and BudgetError where
    neither placement fits.
    """
    if config.placement == "device" and device is None:
        raise ConfigError("--placement device needs a GPU, and --device auto found none: use --placement memory")
    shape = tables.shape
    num_read = len(hops_read(config.model, tables.num_tables))
    room, copy_rate = None, 0.0
    if device is not None:
        room = DeviceRoom(device_bytes(shape, num_read, config.batch_size), device.free_bytes)
        copy_rate = measure_copy_rate(device.device)
    step_seconds = hop_step_seconds(dataset, config, shape, num_read, None if device is None else device.device)
    engine = open_engine(config.engine)
    refused: dict[str, str] = {}
    found: list[Option[HopPlan]] = []
    smallest: BudgetError | None = None
    for place in _PLACES:
        if config.placement not in (AUTO, place):
            refused[place] = f"excluded by --placement {config.placement}"
            continue
        if place == "device" and (room is None or (config.placement == AUTO and room.tables_bytes > room.free_bytes)):
            if room is not None:
                needed, free = format_bytes(room.tables_bytes), format_bytes(room.free_bytes)
                refused[place] = f"tables take {needed} of the device, {free} are for them (--device-memory)"
            continue
        try:
            with ExitStack() as stack:
                for name, num_bytes in also_held.items():
                    stack.enter_context(budget.reserve(name, num_bytes, is_shared=name in held_once))
                reserved, placement = place_hops(config, seeds, shape, num_read, 0, budget, place, room)
        except BudgetError as error:
            refused[place], smallest = str(error), error
            continue
        held = {**also_held, **reserved}
        predicted = predict_hops(
            config, shape, num_read, placement, len(seeds.train), step_seconds, disk, budget, copy_rate
        )
        predicted = replace(predicted, preparation_seconds=tables.seconds, disk_bytes=tables.work_bytes)
        hops = hop_plan(config, str(tables.path), shape, num_read, placement, held, held_once, budget, engine)
        found.append(Option(name=place, plan=hops, predicted=predicted, simplicity=_PLACES.index(place)))
    if not found:
        assert smallest is not None, "only a budget rules out every placement"
        raise smallest
    return rank(found, refused, config.epochs, "hop tables in")
