"""diskhop.update() and diskhop.compact(): the commands that change a dataset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diskhop.budget import Budget
from diskhop.config.train import TrainConfig
from diskhop.config.words import takes_words
from diskhop.importing.options import ImportOptions
from diskhop.io.engine import open_engine
from diskhop.runtime.progress import Progress, silent
from diskhop.updating.compact import compact_dataset
from diskhop.updating.options import OF_DELTAS
from diskhop.updating.run import UpdateEstimate, update_dataset

if TYPE_CHECKING:
    from diskhop.dataset.dataset import Dataset
    from diskhop.importing.run import OnDecisions, OnFacts


@takes_words(ImportOptions, only=OF_DELTAS)
@takes_words(TrainConfig, only=("memory_bytes", "threads"))
def update(
    dataset: Dataset | Path | str,
    delta: Path | str,
    *,
    progress: Progress = silent,
    on_decisions: OnDecisions | None = None,
    on_estimate: Callable[[UpdateEstimate], None] | None = None,
    on_facts: OnFacts = lambda _: None,
    **options: Any,
) -> Dataset:
    """Add and remove edges, add and change nodes, and open the dataset's new generation.

    dataset: open, or its folder. An open one keeps its generation, whose files stay until the next update.
    delta: a folder with tables of edges to add, edges to remove, and nodes; or one of these tables. See the guide to
        updating.
    progress: called with a stage, and what is done of it and in total.
    on_decisions: called with what was decided about the tables before they are read.
    on_estimate: called with the estimate of time and space before anything is written.
    on_facts: called with the numbers of nodes and edges that were added, changed and removed.

    Raises SourceError for a delta that breaks a rule, ConfigError for a graph of several types, BudgetError,
    DestinationError for a full disk; the dataset is then as it was.

    >>> dataset = diskhop.generate("uniform", "daily", nodes=100, edges=500, dim=0, memory="200MB")
    >>> with open("new-edges.csv", "w") as file:
    ...     print("source,destination", file=file)
    ...     print("1,2", file=file)
    >>> diskhop.update("daily", "new-edges.csv", memory="200MB").num_edges > dataset.num_edges
    True
    """
    memory_bytes, threads = options.pop("memory_bytes", None), options.pop("threads", None)
    return update_dataset(
        _path_of(dataset),
        Path(delta),
        options=ImportOptions(**options),
        engine=open_engine("auto").engine,
        budget=None if memory_bytes is None else Budget(memory_bytes),
        threads=threads,
        progress=progress,
        on_decisions=on_decisions,
        on_estimate=on_estimate,
        on_facts=on_facts,
    )


@takes_words(TrainConfig, only=("memory_bytes", "threads"))
def compact(dataset: Dataset | Path | str, *, progress: Progress = silent, **options: Any) -> Dataset:
    """Make an updated dataset what an import of its whole source would have made, and open it.

    Old generations and derived files are removed; a dataset in hot order is sorted again.

    dataset: open, or its folder.
    progress: called with a stage, and what is done of it and in total.

    Raises FormatError for a damaged dataset, BudgetError, DestinationError for a full disk.

    >>> diskhop.compact("no-features", memory="200MB").num_nodes
    600
    """
    memory_bytes = options.pop("memory_bytes", None)
    return compact_dataset(
        _path_of(dataset),
        engine=open_engine("auto").engine,
        budget=None if memory_bytes is None else Budget(memory_bytes),
        threads=options.pop("threads", None),
        progress=progress,
    )


def _path_of(dataset: Dataset | Path | str) -> Path:
    return Path(dataset) if isinstance(dataset, str | Path) else dataset.path
