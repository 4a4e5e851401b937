"""A training run as the planner sees it."""

from __future__ import annotations

from collections.abc import Callable

from diskhop.config.options import AUTO
from diskhop.config.train import SampledConfig
from diskhop.planning.workload import Workload
from diskhop.protocols import NodeRows, Purpose, SampledBatch
from diskhop.runs.nodes.samplers import eval_sampler, train_sampler
from diskhop.sampling.seeds import SeedSet, SplitSeeds


def training_workload(
    config: SampledConfig,
    seeds: SplitSeeds,
    held: dict[str, int],
    measure_step: Callable[[SampledBatch], float] | None = None,
) -> Workload:
    """Return the workload of a configuration.

    seeds: seed nodes of all parts. held: bytes reserved for other graph data, by name. measure_step: returns the
    seconds that the model takes for a batch.
    """

    def seed_set(purpose: Purpose, rows: NodeRows) -> SeedSet:
        is_training = purpose == Purpose.TRAIN
        return SeedSet(
            purpose=purpose,
            seeds=rows,
            batch_size=config.batch_size if is_training else config.eval_batch_size,
            sampler=train_sampler(config) if is_training else eval_sampler(config),
            is_shuffled=is_training,
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
        scratch=config.scratch or None,
        pinned=config.pinned or None,
        epochs=config.epochs,
        max_batches=config.max_batches,
        reuse=config.reuse,
        ordered=config.ordered,
        reads_lent_rows=True,
        also_held=held,
        measure_step=measure_step,
    )
