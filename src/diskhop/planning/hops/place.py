"""Placement of hop tables during training, in memory or on disk, and the plan that records it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import cast

from diskhop.budget import Budget
from diskhop.config.hop import HopConfig
from diskhop.config.options import AUTO
from diskhop.dataset.dataset import Dataset
from diskhop.hops.find import find_hop_tables
from diskhop.hops.read.order import Shuffle, order_bytes
from diskhop.hops.read.placement import SHARED, DeviceRoom, Place, Placement, loader_bytes, place_tables
from diskhop.hops.spec import ALL_ROWS, LABELLED_ROWS, PropagationSpec
from diskhop.hops.tables import TableShape
from diskhop.io.engine import OpenedEngine
from diskhop.pipeline.transfer import RING_BYTES
from diskhop.planning.options import describe_division
from diskhop.plans import HopPlan
from diskhop.sampling.seeds import SplitSeeds

_MEASURED_ROWS = "rows of validation and test"


def propagation_spec(dataset: Dataset, config: HopConfig) -> PropagationSpec:
    """Return the spec of the tables that a run reads.

    With splits, tables of the nodes in splits, unless only tables of all nodes exist already. Raises ConfigError.
    """
    of_all = PropagationSpec(
        operators=config.operators,
        hops=config.hops,
        direction=config.direction,
        dtype=config.dtype,
        edge_weights=config.edge_weights,
        rows=ALL_ROWS,
    )
    if not dataset.num_splits:
        return of_all
    labelled, scratch = replace(of_all, rows=LABELLED_ROWS), Path(config.scratch) if config.scratch else None
    are_there = [find_hop_tables(dataset, spec, scratch) is not None for spec in (labelled, of_all)]
    return of_all if are_there == [False, True] else labelled


def hop_plan(
    config: HopConfig,
    path: str,
    shape: TableShape,
    num_tables: int,
    placement: Placement,
    reserved: dict[str, int],
    held_once: Collection[str],
    budget: Budget,
    engine: OpenedEngine,
) -> HopPlan:
    """Return the plan of a run on tables of this shape in the folder `path`.

    reserved: bytes by name, as one process has them. held_once: names of those, next to the tables, that all processes
    have in one copy.
    """
    chunks = f", {config.chunk_rows} rows each" if placement.shuffle == "chunks" else ""
    reasons = [f"engine {engine.engine.name}: {engine.reason}", placement.reason + chunks]
    once = {*held_once, *SHARED}
    shared = tuple(name for name in reserved if name in once) if budget.num_processes > 1 else ()
    if budget.num_processes > 1:
        reasons.append(describe_division(reserved, shared, budget.num_processes))
    return HopPlan(
        tables=path,
        num_tables=num_tables,
        num_rows=shape.num_rows,
        table_bytes=num_tables * shape.num_bytes,
        placement=placement.place,
        shuffle=placement.shuffle,
        chunk_rows=config.chunk_rows,
        engine=engine.engine.name,
        threads=config.threads,
        memory_bytes=budget.total_bytes,
        reserved=reserved,
        reasons=tuple(reasons),
        num_processes=budget.num_processes,
        shared=shared,
    )


def place_hops(
    config: HopConfig,
    seeds: SplitSeeds,
    shape: TableShape,
    num_tables: int,
    model_bytes: int,
    budget: Budget,
    compared: Place | None = None,
    device: DeviceRoom | None = None,
) -> tuple[dict[str, int], Placement]:
    """Place the tables, and return the bytes to reserve by name.

    model_bytes: measured memory of a training step. compared: the place to plan for, of those that the configuration
    allows; None for the one to take. device: memory of the one that computes; None: the CPU does. Raises BudgetError.
    """
    num_train = len(seeds.train)
    measured = {_MEASURED_ROWS: sum(ids.nbytes for ids in (seeds.valid, seeds.test) if ids is not None)}
    shuffle = None if config.shuffle == AUTO else cast(Shuffle, config.shuffle)

    def needed(place: Place, shuffle: Shuffle) -> dict[str, int]:
        return {
            **loader_bytes(shape, num_tables, config.batch_size, place),
            **({} if device is None else {"transfer buffers": RING_BYTES}),
            "hop rows": 8 * num_train,
            "row order": order_bytes(num_train, shuffle, config.chunk_rows),
            **measured,
        }

    placement = place_tables(
        num_bytes=budget.needed_by(needed("memory", shuffle or "rows"), SHARED),
        memory_bytes=budget.left_after({}),
        model_bytes=budget.num_processes * model_bytes,
        place=compared if config.placement == AUTO else cast(Place, config.placement),
        is_requested=config.placement != AUTO,
        shuffle=shuffle,
        device=device,
    )
    reserved = needed(placement.place, placement.shuffle)
    budget.require(reserved, SHARED)
    return reserved, placement
