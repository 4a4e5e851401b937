"""diskhop.import_graph(): the command `diskhop import`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diskhop.budget import Budget
from diskhop.config.train import TrainConfig
from diskhop.config.words import takes_words
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import OnDecisions, OnEstimate, OnFacts
from diskhop.importing.run import import_graph as import_source
from diskhop.io.engine import open_engine
from diskhop.runtime.progress import Progress, silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from diskhop.dataset.dataset import Dataset


@takes_words(ImportOptions)
@takes_words(TrainConfig, only=("memory_bytes", "threads"))
def import_graph(
    source: Path | str,
    destination: Path | str,
    *,
    format: str | None = None,
    name: str | None = None,
    features_from: Path | str | None = None,
    executor: str = "",
    workers: int | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
    on_decisions: OnDecisions | None = None,
    on_estimate: OnEstimate | None = None,
    on_facts: OnFacts = lambda _: None,
    **options: Any,
) -> Dataset:
    """Make a dataset from a file or folder, and open it. It appears once it is complete, or not at all.

    source: a folder with data.npz, .npy files or tables, or a text of edges; see the guide to importing.
    destination: the new folder.
    format: format of the source; default: detected.
    name: the dataset's name; default: the source's.
    features_from: folder of a run of embed(), whose embeddings become the features of a graph without.
    executor, workers: where tasks run, as --executor; see runtime/executors.py.
    overwrite: whether a dataset at the destination is replaced.
    progress: called with a stage, and what is done of it and in total.
    on_decisions: called with what was decided about the source before anything is read.
    on_estimate: called with the estimate of time and space before anything is written.
    on_facts: called with what only the import knows, such as counts of duplicates.

    Raises SourceError for a source that breaks a rule, ConfigError for an option that does not apply, BudgetError,
    DestinationError for a full disk.

    >>> with open("edges.txt", "w") as file:
    ...     print("anna bob", file=file)
    ...     print("bob carl", file=file)
    >>> dataset = diskhop.import_graph("edges.txt", "friends", undirected=True, header=False, memory="200MB")
    >>> dataset.num_nodes, dataset.num_edges
    (3, 4)
    """
    memory_bytes, threads = options.pop("memory_bytes", None), options.pop("threads", None)
    run: Callable[..., Dataset]
    if features_from is None:
        run = partial(import_source, Path(source), Path(destination), engine=open_engine("auto").engine)
    else:
        from diskhop.runs.embedding.imported import import_with_embeddings

        run = partial(import_with_embeddings, Path(features_from), Path(source), Path(destination))
    return run(
        format_name=format,
        name=name,
        options=ImportOptions(**options),
        budget=None if memory_bytes is None else Budget(memory_bytes),
        threads=threads,
        executor=executor,
        workers=workers,
        progress=progress,
        on_decisions=on_decisions,
        on_estimate=on_estimate,
        on_facts=on_facts,
        overwrite=overwrite,
    )
