"""Training: from a dataset and options to a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from diskhop.budget import parse_sizes
from diskhop.dataset.dataset import Dataset
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.embedding.evaluate import evaluate_run
from diskhop.runs.embedding.export import export_embeddings
from diskhop.runs.embedding.map import draw_map
from diskhop.runs.embedding.queries import Answer, EdgeScore, complete, neighbors, score
from diskhop.runs.embedding.run import Embedded, embed
from diskhop.runs.embedding.search import Trial, search
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.nodes.packing import pack
from diskhop.runs.nodes.run import Trained, train_node_classifier
from diskhop.runs.source import find_run_source

__all__ = [
    "Answer",
    "BatchProgress",
    "Callback",
    "EdgeScore",
    "Embedded",
    "Trained",
    "Trial",
    "complete",
    "draw_map",
    "embed",
    "evaluate_run",
    "export_embeddings",
    "neighbors",
    "pack",
    "resolve_config",
    "score",
    "search",
    "train",
    "train_node_classifier",
]


def train(
    dataset: Dataset | Path | str | None = None,
    *,
    preset: str | None = None,
    config: Path | str | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    memory: int | str | None = None,
    cache: int | str | None = None,
    disk: int | str | None = None,
    watcher: Callback | None = None,
    **options: Any,
) -> Trained:
    """Train on a dataset, with the options of TrainConfig; what is not given is chosen, and `watcher` is told why.

    memory, cache, disk: bytes or a size such as '2GB', for the options memory_bytes, cache_bytes and disk_bytes.
    config: a file with options, such as a run's config.toml; options given here win over it, and it over the preset.
    The dataset may be left to it. out: the folder for the run. resume: go on with the run in `out`, by its config.toml.
    """
    options.update(parse_sizes(memory=memory, cache=cache, disk=disk))
    source = find_run_source(dataset, options, config=config, preset=preset, out=out, resume=resume)
    resolved, reasons, task = resolve_config(source.dataset, source.options, preset)
    if watcher is not None:
        watcher.configured(resolved, reasons)
    return train_node_classifier(
        source.dataset, resolved, Path(out) if out is not None else None, task=task, resume=resume, watcher=watcher
    )
