"""What a run would take, of every way to run it: nothing is trained, nothing is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from diskhop.budget import Budget, parse_sizes
from diskhop.config.train import HopConfig, SampledConfig
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.embedding.scoring.scores import SCORES
from diskhop.errors import ConfigError
from diskhop.io.engine import choose_engine
from diskhop.planning.embeddings.rank import rank_partitions
from diskhop.planning.hops.rank import rank_placements
from diskhop.planning.measure import disk_model
from diskhop.planning.options import Ranking
from diskhop.planning.planner import rank_options
from diskhop.runs.embedding.defaults import resolve_embed_config
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.nodes.packing import find_packed
from diskhop.runs.nodes.sampled import sampled_workload


def plan_run(
    dataset: Dataset | Path | str,
    *,
    preset: str | None = None,
    memory: int | str | None = None,
    cache: int | str | None = None,
    disk: int | str | None = None,
    **options: Any,
) -> Ranking[Any]:
    """Rank the ways to run train(), or, for a model of embeddings, embed(), with the same options.

    Measures the disk, once for each, and the model on a few batches. Raises ConfigError, BudgetError where no way fits.
    """
    options.update(parse_sizes(memory=memory, cache=cache, disk=disk))
    opened = dataset if isinstance(dataset, Dataset) else open_dataset(Path(dataset))
    if options.get("model") in SCORES:
        embedding = resolve_embed_config(opened, options, preset).config
        return rank_partitions(opened, embedding, disk_model(opened, choose_engine(embedding.engine)[0]))
    config, _, task = resolve_config(opened, options, preset)
    budget = Budget(config.memory_bytes)
    device = disk_model(opened, choose_engine(config.engine)[0])
    if isinstance(config, HopConfig):
        return rank_placements(opened, config, task.seeds, task.held, budget, device)
    assert isinstance(config, SampledConfig)
    if opened.features() is None:
        raise ConfigError(f"{opened.path}: has no features to bring: there is nothing to choose, every store is alike")
    workload = sampled_workload(opened, config, task)
    return rank_options(opened, find_packed(opened, config, workload, task.seeds.train), budget, device)
