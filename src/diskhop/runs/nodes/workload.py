"""A training run as the planner sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from diskhop.config.options import AUTO
from diskhop.config.sampled import SampledConfig
from diskhop.config.sampler import WITH_FILES
from diskhop.config.train import LINK
from diskhop.planning.workload import Workload
from diskhop.plans import SampledPlan
from diskhop.protocols import NodeRows, Purpose, SampledBatch
from diskhop.runs.nodes.samplers import eval_sampler, train_seed_set
from diskhop.sampling.seeds import SeedSet, SplitSeeds
from diskhop.stores.stores import STORES

ConfigT = TypeVar("ConfigT", bound=SampledConfig)

# Held data of which the processes of a machine have one copy.
HELD_ONCE = frozenset({"labels"})


def training_workload(
    config: SampledConfig,
    seeds: SplitSeeds,
    held: dict[str, int],
    num_nodes: int,
    measure_step: Callable[[SampledBatch], float] | None = None,
) -> Workload:
    """Return the workload of a configuration on nodes.

    seeds: seed nodes of all parts. num_nodes: of the graph. See workload_of() for the others.
    """

    def seed_set(purpose: Purpose, rows: NodeRows) -> SeedSet:
        if purpose == Purpose.TRAIN:
            return train_seed_set(config, rows, num_nodes)
        return SeedSet(
            purpose=purpose,
            seeds=rows,
            batch_size=config.eval_batch_size,
            sampler=eval_sampler(config),
            is_shuffled=False,
        )

    parts = ((Purpose.TRAIN, seeds.train), (Purpose.VALID, seeds.valid), (Purpose.TEST, seeds.test))
    seed_sets = [seed_set(purpose, ids) for purpose, ids in parts if ids is not None]
    return replace(workload_of(config, seed_sets, held, measure_step), may_take_turns=True)


def workload_of(
    config: SampledConfig,
    seed_sets: Sequence[SeedSet],
    held: Mapping[str, int],
    measure_step: Callable[[SampledBatch], float] | None = None,
) -> Workload:
    """Return the workload of a configuration.

    seed_sets: seeds of all passes, training first. held: bytes reserved for other graph data, by name. measure_step:
    returns the seconds that the model takes for a batch.
    """
    return Workload(
        seed_sets=tuple(seed_sets),
        seed=config.seed,
        store=config.store,
        engine=None if config.engine == AUTO else config.engine,
        threads=config.threads,
        cache_bytes=config.cache_bytes or None,
        neighbor_cache_bytes=config.neighbor_cache_bytes or None,
        superbatch=config.superbatch or None,
        disk_bytes=config.disk_bytes or None,
        scratch=_scratch_of_store(config),
        pinned=config.pinned or None,
        epochs=config.epochs,
        max_batches=config.max_batches,
        reuse=config.reuse,
        ordered=config.ordered,
        reads_lent_rows=True,
        also_held=held,
        held_once=HELD_ONCE,
        measure_step=measure_step,
    )


def planned_config(config: ConfigT, plan: SampledPlan) -> ConfigT:
    """Return a configuration with what its plan chose: the store, the engine, threads, and the order of batches."""
    # A store that was chosen for the user must not change what is trained, so its batches come in order.
    ordered = config.ordered or (config.store == AUTO and plan.ordered and "ordered" in STORES[plan.store].uses)
    return replace(config, store=plan.store, engine=plan.engine, threads=plan.threads, ordered=ordered)


def _scratch_of_store(config: SampledConfig) -> str | None:
    """Return the folder that the store gets. Files of a sampler and splits of edges are there too, for any store."""
    uses = STORES[config.store].uses if config.store in STORES else ("scratch",)
    has_files = config.sampler in WITH_FILES or config.task == LINK
    return None if has_files and "scratch" not in uses else config.scratch or None
