"""Writes predictions to a folder that appears complete, or not at all.

    with predictions_folder(destination, overwrite=False) as staged:
        ...  # compute the tables
        write_predictions(staged, dataset, outputs, tables, work, format_name="parquet", key=key, facts=facts)

The folder has the files of the format, `_manifest.json` and, written last, `_SUCCESS`. Tools that read a folder as one
table ignore names that begin with _. Finished files are kept in the work folder until its owner removes it,
so that a killed run resumes; bytes depend neither on memory nor on threads.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from diskhop.dataset.dataset import Dataset
from diskhop.io.atomic import Injector, link, require_free_space, write_file
from diskhop.io.destinations import FolderKind, StagedDirectory
from diskhop.io.manifests import encode_manifest, read_manifest
from diskhop.predicting.columns import Outputs, TableName
from diskhop.predicting.files import FileTask, data_path, read_entry
from diskhop.predicting.opened_format import OpenedFormat
from diskhop.predicting.rows import RowTable
from diskhop.predicting.sizes import OutputLimits, OutputSizes, require_format
from diskhop.predicting.table import ID, PredictionTable
from diskhop.protocols import NodeRows
from diskhop.run_files import PREDICTIONS_FILE, SUCCESS_FILE
from diskhop.runtime.blocks import threads_that_fit
from diskhop.runtime.tasks import run_tasks
from diskhop.runtime.work_tools import WorkTools

PREDICTIONS = FolderKind(
    "predictions",
    SUCCESS_FILE,
    (SUCCESS_FILE, PREDICTIONS_FILE, "part-*.parquet", "part-*.tsv", "*.npy", "ids.txt", "class.txt"),
)
_VERSION = 1
_STAGE = "predictions"


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions that were written.

    path: the folder.
    num_rows: number of nodes.
    files: bytes of each file with predictions.
    """

    path: Path
    num_rows: int
    files: Mapping[str, int]


def predictions_folder(destination: Path, *, overwrite: bool, injector: Injector | None = None) -> StagedDirectory:
    """Open a destination before the heavy work, so that what is wrong with it is reported first.

    overwrite: whether predictions that are there are replaced. Entering the context raises DestinationError for
    anything else that is there, and for another process that writes there.
    """
    return StagedDirectory(destination, PREDICTIONS, overwrite=overwrite, injector=injector)


def write_predictions(
    staged: StagedDirectory,
    dataset: Dataset,
    outputs: Outputs,
    tables: Mapping[TableName, RowTable],
    work: WorkTools,
    *,
    key: str,
    nodes: NodeRows | None = None,
    format_name: str = "parquet",
    facts: Mapping[str, Any] | None = None,
    limits: OutputLimits | None = None,
) -> Predictions:
    """Write predictions and publish them.

    staged: the destination (see predictions_folder()), entered.
    tables: logits, embedding or both. Several threads iterate over them at the same time.
    key: text that differs if any row of the tables differs.
    nodes: rows of the nodes to write, each once; None: all.
    format_name: a key of FORMATS (sizes.py).
    facts: what the manifest says in addition, such as the run, seconds and metrics; JSON.
    limits: sizes that the work is divided by; tests pass tiny ones.

    Parquet and TSV have nodes in the dataset's order, npy in the order of dataset.node_ids().

    Raises ConfigError, BudgetError, DestinationError if the disk is too small; PredictionError, naming node and
    table, for a value that is not finite.
    """
    require_format(format_name)
    with ExitStack() as held:
        work = replace(work, held=held)
        opened = OpenedFormat(format_name, dataset, outputs, tables, nodes, key, limits, work)
        table = opened.table
        folder = work.stage(_STAGE, _stage_key(table, format_name))
        needed_bytes = table.sizes.disk_bytes(format_name) - work.folder.kept_bytes(_STAGE)
        require_free_space(staged.path, needed_bytes, "the folder of predictions")
        _write_files(opened, table.sizes, format_name, folder, work)
    entries = {file.name: read_entry(folder, file.name) for file in opened.files}
    injector = work.tools.injector
    for name in entries:
        link(data_path(folder, name), staged.path / name, injector)
    manifest = _manifest(table, format_name, entries, facts or {})
    write_file(staged.path / PREDICTIONS_FILE, encode_manifest(manifest, _VERSION), injector)
    write_file(staged.path / SUCCESS_FILE, b"", injector)
    staged.publish()
    return Predictions(staged.path, table.count, {name: entry["bytes"] for name, entry in entries.items()})


def read_predictions_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of predictions. Raises ReadError, FormatError."""
    return read_manifest(folder / PREDICTIONS_FILE, _VERSION, "predictions", "run 'diskhop predict' again")


def _write_files(opened: OpenedFormat, sizes: OutputSizes, format_name: str, folder: Path, work: WorkTools) -> None:
    """Write the files that are missing, several at a time on each machine, or else one with several threads."""
    most, tools = min(work.threads, opened.most_threads or work.threads), work.tools
    machines = 1 if opened.most_threads else tools.processes_of(1)
    available_bytes = work.budget.available_bytes
    task_bytes = sizes.task_bytes(format_name)
    # A task with several threads has a group for each of them and one that waits.
    thread_bytes = sizes.group_bytes + sizes.computing_bytes

    def needed_bytes(at_once: int, threads: int) -> int:
        # Each process opens the table for itself.
        others_bytes = (min(tools.processes_per_machine, at_once) - 1) * opened.held_bytes
        return others_bytes + at_once * (task_bytes + (threads > 1) * (threads + 1) * thread_bytes)

    most_files = min(most, -(-len(opened.files) // machines))
    at_once = threads_that_fit(most_files, available_bytes, lambda tasks: needed_bytes(tasks, 1))
    threads = threads_that_fit(most // at_once, available_bytes, lambda each: needed_bytes(at_once, each))
    tasks = [FileTask(file, opened, threads) for file in opened.files]
    with work.budget.reserve("writing predictions", needed_bytes(at_once, threads)):
        # A machine with fewer processes leaves no tasks to the others, which have no memory for them.
        spread = at_once if machines == 1 else max(at_once, tools.processes_of(at_once))
        run_tasks(tasks, folder, tools, threads=spread, here=at_once, progress=partial(work.progress, _STAGE))


def _stage_key(table: PredictionTable, format_name: str) -> str:
    """Return a text that differs if a byte of the files may differ."""
    facts = {"format": format_name, "versions": _versions(), "limits": asdict(table.sizes.limits), "table": table.key}
    return json.dumps(facts, indent=1)


def _manifest(
    table: PredictionTable, format_name: str, entries: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, Any]:
    columns = [{"name": ID, "dtype": "int64", "width": 0}, *(asdict(column) for column in table.columns)]
    named = {ID: table.ids.are_names, "class": table.class_names is not None}
    for column in columns:
        if named.get(column["name"]):
            column["dtype"] = "string"
    return {
        "format": format_name,
        "rows": table.count,
        "order": "source" if format_name == "npy" else "dataset",
        "columns": columns,
        "dataset": {"name": table.dataset.manifest.name, "hash": table.dataset.hash},
        "files": dict(entries),
        "versions": _versions(),
        "facts": dict(facts),
    }


def _versions() -> dict[str, str]:
    return {
        "diskhop": version("diskhop"),
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
        "python": platform.python_version(),
    }
