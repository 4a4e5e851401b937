"""Ranking of the placements of hop tables, in memory or on disk, with the propagation of missing tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from diskhop.budget import Budget
from diskhop.config.options import AUTO
from diskhop.config.train import HopConfig
from diskhop.dataset.dataset import Dataset
from diskhop.derived.scratch import scratch_path
from diskhop.disk.model import DiskModel
from diskhop.errors import BudgetError
from diskhop.hops.find import find_hop_tables
from diskhop.hops.make.prepare import plan_tables
from diskhop.io.engine import open_engine
from diskhop.nn.models import hops_read
from diskhop.planning.hops.costs import hop_step_seconds, predict_hops
from diskhop.planning.hops.place import hop_plan, place_hops, propagation_spec
from diskhop.planning.options import Option, Ranking, rank
from diskhop.plans import HopPlan
from diskhop.sampling.seeds import SplitSeeds

Place = Literal["memory", "disk"]
_PLACES: tuple[Place, ...] = ("memory", "disk")


def rank_placements(
    dataset: Dataset,
    config: HopConfig,
    seeds: SplitSeeds,
    also_held: Mapping[str, int],
    budget: Budget,
    disk: DiskModel,
) -> Ranking[HopPlan]:
    """Rank the configuration with tables in memory and on disk.

    also_held: bytes of the budget that a run reserves besides, by name.
    Raises ConfigError, and BudgetError where neither placement fits.
    """
    scratch = Path(config.scratch) if config.scratch else None
    spec = propagation_spec(dataset, config)
    tables = find_hop_tables(dataset, spec, scratch, budget)
    preparation_seconds, work_bytes = 0.0, 0
    if tables is None:
        made, plan = plan_tables(dataset, spec, budget, threads=config.threads, disk=disk)
        shape, num_tables = made.kept_shape, made.num_tables
        path, preparation_seconds, work_bytes = scratch_path(dataset.path, scratch), plan.seconds, plan.work_bytes
    else:
        shape, num_tables, path = tables.shape, tables.num_tables, tables.path
    num_read = len(hops_read(config.model, num_tables))
    step_seconds = hop_step_seconds(dataset, config, shape, num_read)
    engine = open_engine(config.engine)
    refused: dict[str, str] = {}
    found: list[Option[HopPlan]] = []
    smallest: BudgetError | None = None
    for place in _PLACES:
        if config.placement not in (AUTO, place):
            refused[place] = f"excluded by --placement {config.placement}"
            continue
        try:
            reserved, placement = place_hops(replace(config, placement=place), seeds, shape, num_read, 0, budget)
        except BudgetError as error:
            refused[place], smallest = str(error), error
            continue
        held = {**also_held, **reserved}
        predicted = predict_hops(config, shape, num_read, placement, len(seeds.train), step_seconds, disk, budget)
        predicted = replace(predicted, preparation_seconds=preparation_seconds, disk_bytes=work_bytes)
        hops = hop_plan(config, str(path), shape, num_read, placement, held, engine)
        found.append(Option(name=place, plan=hops, predicted=predicted, simplicity=_PLACES.index(place)))
    if not found:
        assert smallest is not None, "only a budget rules out both placements"
        raise smallest
    return rank(found, refused, config.epochs, "hop tables in")
