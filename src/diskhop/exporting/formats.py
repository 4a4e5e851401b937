"""Taking datasets out. One file per format; adding one is a file and a line in EXPORTS.

What comes out is what users see: nodes in the ascending order of their original ids, whatever order they lie in.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.build.builder import WRITING
from diskhop.dataset.build.files import WRITER_BYTES, DatasetFiles
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.exporting.arrays import export_arrays
from diskhop.exporting.graphbolt import export_graphbolt
from diskhop.exporting.parquet import export_parquet
from diskhop.io.atomic import Injector, StagedDirectory, destination_errors, require_free_space, require_parent
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools, WorkFolder
from diskhop.runtime.work_tools import WorkTools
from diskhop.system.memory import default_memory_bytes, default_threads

EXPORTS: dict[str, Callable[[Dataset, DatasetFiles, WorkTools], None]] = {
    "numpy": export_arrays,
    "parquet": export_parquet,
    "graphbolt": export_graphbolt,
}


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: the folder, and the bytes of each file in it."""

    path: Path
    format_name: str
    files: dict[str, int]


def export_dataset(
    dataset: Dataset,
    destination: Path,
    *,
    format_name: str,
    engine: Engine,
    budget: Budget | None = None,
    threads: int | None = None,
    injector: Injector | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write a dataset as a folder that appears whole, or not at all. Numbers are original ids where these are 0 to
    nodes - 1, else ranks among them, and the ids are written beside.

    budget: half of the free memory where there is none. Rows that were moved by --order hot go back within it, by way
    of the destination's disk where need be.

    Raises ConfigError for what the format has no place for, BudgetError, DestinationError, FormatError for damage.
    """
    if format_name not in EXPORTS:
        raise ConfigError(f"format '{format_name}' is unknown; choose one of {', '.join(EXPORTS)}")
    budget = budget or Budget(default_memory_bytes())
    budget.require({WRITING: WRITER_BYTES})
    tools = TaskTools(engine, injector)
    # Features of bfloat16 and int8 become longer, edges of 32 bits too.
    require_free_space(require_parent(destination), sum(entry.num_bytes for entry in dataset.manifest.files.values()))
    with ExitStack() as held:
        staged = held.enter_context(StagedDirectory(destination, injector))
        folder = WorkFolder(staged.path / "work", injector)
        # It goes with the staged folder where anything fails: there is nothing to tell of work that is kept.
        held.callback(folder.__exit__, None, None, None)
        held.enter_context(budget.reserve(WRITING, WRITER_BYTES))
        work = WorkTools(folder, tools, budget, threads or default_threads(), progress or silent, held)
        EXPORTS[format_name](dataset, DatasetFiles(staged.path, engine, injector), work)
        with destination_errors(destination):
            folder.remove()
        files = {
            str(path.relative_to(staged.path)): path.stat().st_size
            for path in sorted(staged.path.rglob("*"))
            if path.is_file()
        }
        staged.publish()
    return Exported(destination, format_name, files)
