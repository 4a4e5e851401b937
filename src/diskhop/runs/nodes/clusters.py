"""Clusters of nodes for a run: found next to the dataset, or made before it is planned."""

from __future__ import annotations

import time
from typing import Any

from diskhop.budget import Budget
from diskhop.config.sampled import SampledConfig
from diskhop.config.sampler import CLUSTER
from diskhop.dataset.dataset import Dataset
from diskhop.derived.make import make_once
from diskhop.derived.scratch import scratch_path
from diskhop.io.engine import open_engine
from diskhop.runtime.progress import Progress, silent
from diskhop.sampling.clusters import ClustersSpec, make_clusters, open_clusters


def with_clusters(
    dataset: Dataset, config: SampledConfig, budget: Budget, progress: Progress = silent
) -> tuple[Dataset, list[dict[str, Any]]]:
    """Return the dataset with the clusters that a run's sampler needs, and the work of finding them, for result.json.

    They are the same for every seed of a run. Raises ConfigError, BudgetError, DestinationError, FormatError and
    ReadError.
    """
    if config.sampler != CLUSTER:
        return dataset, []
    spec = ClustersSpec(dataset_hash=dataset.hash, num_clusters=config.clusters)
    folder = spec.folder(scratch_path(dataset.path, config.scratch or None))
    steps: list[dict[str, Any]] = []

    def find() -> None:
        started = time.perf_counter()
        engine = open_engine(config.engine).engine
        bytes_read = make_clusters(spec, folder, dataset.topology, engine, budget, progress=progress)
        steps.append(
            {
                "step": "find clusters",
                "seconds": time.perf_counter() - started,
                "bytes_read": bytes_read,
                "bytes_written": 8 * (dataset.num_nodes + config.clusters + 1),
            }
        )

    make_once(folder, find, progress)
    return dataset.with_clusters(open_clusters(folder, spec, dataset.num_nodes)), steps
