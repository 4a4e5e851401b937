"""Predicting what a run would take in every way it could run, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from diskhop.budget import parse_sizes
from diskhop.config.options import require
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.planning.options import Ranking
from diskhop.run_files import EMBEDDING
from diskhop.runs.choices import Resolved
from diskhop.runs.embedding.defaults import resolve_embed_config
from diskhop.runs.kinds import find_kind, kind_of, on_one_machine
from diskhop.runs.total_memory import fit_memory


def plan_run(
    dataset: Dataset | Path | str,
    *,
    preset: str | None = None,
    memory: int | str | None = None,
    total_memory: int | str | None = None,
    cache: int | str | None = None,
    neighbor_cache: int | str | None = None,
    disk: int | str | None = None,
    device_memory: int | str | None = None,
    processes: int = 1,
    **options: Any,
) -> Ranking[Any]:
    """Rank the ways to run train(), or embed() for a model of embeddings, with the same options.

    processes: that train together on this machine, and share memory, threads and disk.

    Measures the disk, once for each, and the model on a few batches. Raises ConfigError; BudgetError where no way fits.
    """
    require(processes >= 1, "processes", "at least 1", processes, "for example --processes 2")
    options.update(parse_sizes(memory=memory, total_memory=total_memory, cache=cache, neighbor_cache=neighbor_cache))
    options.update(parse_sizes(disk=disk, device_memory=device_memory))
    opened = as_dataset(dataset)
    kind = find_kind(options.get("model"), options.get("task"), opened)
    if kind.name == EMBEDDING:
        # Partitions are chosen for all processes; too many of them are refused first.
        chosen: Resolved[Any, Any] = resolve_embed_config(opened, options, preset, on_one_machine(processes))
    else:
        chosen = kind.resolve(opened, options, preset)
    resolved, _ = fit_memory(kind, opened, chosen, processes)
    return kind_of(resolved.config).rank(opened, resolved.config, resolved.task, processes)
