"""Importing a graph with the embeddings of a run as its features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from diskhop.budget import Budget
from diskhop.dataset.build.builder import DATASET
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.manifest import MANIFEST_NAME
from diskhop.errors import ConfigError
from diskhop.importing.options import ImportOptions, as_option
from diskhop.importing.run import import_graph, open_source
from diskhop.io.atomic import remove_tree
from diskhop.io.destinations import StagedDirectory
from diskhop.io.engine import open_engine
from diskhop.runs.embedding.features import from_embeddings
from diskhop.runs.embedding.opened import open_run
from diskhop.runtime.progress import Progress, silent


def import_with_embeddings(
    run: Path,
    source: Path,
    destination: Path,
    *,
    format_name: str | None = None,
    name: str | None = None,
    options: ImportOptions,
    budget: Budget | None = None,
    threads: int | None = None,
    progress: Progress = silent,
    on_facts: Callable[[Mapping[str, Any]], None] = lambda _: None,
    overwrite: bool = False,
    **others: Any,
) -> Dataset:
    """Make a dataset from a graph without features, or from such a dataset, and the embeddings of a run.

    source: what import_graph() takes, or the folder of a dataset, whose files become hard links. Other arguments are
    those of import_graph() and from_embeddings().

    The graph is first imported next to the destination, and removed in the end. Raises ConfigError for a source with
    features, and for an option that does not apply, before anything is read.
    """
    opened = open_run(run)

    def embedded(graph: Dataset | Path) -> Dataset:
        return from_embeddings(
            opened,
            destination,
            graph,
            name=name,
            dtype=options.dtype or "float32",
            memory=budget,
            threads=threads,
            overwrite=overwrite,
            progress=progress,
            on_facts=on_facts,
        )

    plain = replace(options, dtype=None)
    if (source / MANIFEST_NAME).is_file():
        unfit = [as_option(each) for each in plain.given()] + ["--format"] * (format_name is not None)
        if unfit:
            raise ConfigError(f"{source}: is a dataset already, {unfit[0]} does not apply to it; remove {unfit[0]}")
        return embedded(source)
    if options.random_features:
        raise ConfigError("--random-features and --features-from both make features; remove one of them")
    graph = open_source(source, format_name, plain)
    if graph.load.feature_values:
        raise ConfigError(
            f"{source}: has features, and embeddings stand in for missing ones; remove --features-from, or import the "
            "graph without features"
        )
    with StagedDirectory(destination, DATASET, overwrite=overwrite):
        pass  # refuses a destination that is taken before the work
    between = destination.with_name(f".{destination.name}.graph")
    try:
        imported = import_graph(
            graph,
            between,
            origin=str(source),
            name=name,
            options=plain,
            engine=open_engine("auto").engine,
            budget=budget,
            threads=threads,
            progress=progress,
            on_facts=on_facts,
            overwrite=True,
            **others,
        )
        return embedded(imported)
    finally:
        remove_tree(between)
