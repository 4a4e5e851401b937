"""A training run as the planner sees it."""

from __future__ import annotations

from collections.abc import Callable

from diskhop.config.options import AUTO
from diskhop.config.sampler import WITH_FILES
from diskhop.config.train import SampledConfig
from diskhop.planning.workload import Workload
from diskhop.protocols import NodeRows, Purpose, SampledBatch
from diskhop.runs.nodes.samplers import eval_sampler, train_seed_set
from diskhop.sampling.seeds import SeedSet, SplitSeeds
from diskhop.stores.stores import STORES


def training_workload(
    config: SampledConfig,
    seeds: SplitSeeds,
    held: dict[str, int],
    num_nodes: int,
    measure_step: Callable[[SampledBatch], float] | None = None,
) -> Workload:
    """Return the workload of a configuration.

    seeds: seed nodes of all parts. held: bytes reserved for other graph data, by name. num_nodes: of the graph.
    measure_step: returns the seconds that the model takes for a batch.
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
    return Workload(
        seed_sets=tuple(seed_set(purpose, ids) for purpose, ids in parts if ids is not None),
        seed=config.seed,
        store=config.store,
        engine=None if config.engine == AUTO else config.engine,
        threads=config.threads,
        cache_bytes=config.cache_bytes or None,
        disk_bytes=config.disk_bytes or None,
        scratch=_scratch_of_store(config),
        pinned=config.pinned or None,
        epochs=config.epochs,
        max_batches=config.max_batches,
        reuse=config.reuse,
        ordered=config.ordered,
        reads_lent_rows=True,
        also_held=held,
        measure_step=measure_step,
    )


def _scratch_of_store(config: SampledConfig) -> str | None:
    """Return the folder that the store gets. The files of a sampler are there too, whatever the store."""
    uses = STORES[config.store].uses if config.store in STORES else ("scratch",)
    return None if config.sampler in WITH_FILES and "scratch" not in uses else config.scratch or None
