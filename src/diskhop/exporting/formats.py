"""Exports datasets. Each format is a file, and a line in EXPORTS.

Nodes come out in the ascending order of their original ids, whatever their order in the dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from diskhop._native import Engine
from diskhop.budget import Budget, format_bytes
from diskhop.dataset.attribute_info import AttributeInfo
from diskhop.dataset.build.builder import WRITING
from diskhop.dataset.build.files import WRITER_BYTES, DatasetFiles
from diskhop.dataset.dataset import Dataset
from diskhop.display import Display, Facts, Part, Row
from diskhop.errors import ConfigError
from diskhop.exporting.arrays import export_arrays
from diskhop.exporting.columns import own_attributes
from diskhop.exporting.graphbolt import export_graphbolt
from diskhop.exporting.parquet import export_parquet
from diskhop.exporting.tables import export_tables, is_exported
from diskhop.importing.graphbolt.metadata import METADATA_NAME
from diskhop.importing.tables.typed.schema import SCHEMA_NAME
from diskhop.io.atomic import Injector, destination_errors, require_free_space, require_parent
from diskhop.io.destinations import FolderKind, StagedDirectory
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import TaskTools, WorkFolder
from diskhop.runtime.work_tools import WorkTools
from diskhop.system.memory import default_memory_bytes, default_threads


class ExportFormat(NamedTuple):
    """A format. write: writes its files. folders: the folders that it makes. keeps: whether it has an attribute."""

    write: Callable[[Dataset, DatasetFiles, WorkTools], None]
    folders: FolderKind
    keeps: Callable[[str, AttributeInfo], bool] = lambda name, info: True


def _kind(marker: str, *entries: str) -> FolderKind:
    return FolderKind("an export of this format", marker, (marker, *entries))


EXPORTS = {
    "numpy": ExportFormat(export_arrays, _kind("num_nodes.npy", "*.npy", "*.txt.gz")),
    "parquet": ExportFormat(export_parquet, _kind("nodes.parquet", "edges.parquet"), lambda name, info: False),
    "tables": ExportFormat(export_tables, _kind(SCHEMA_NAME, "nodes", "edges"), is_exported),
    # DGL keeps what it makes of the folder in it, as "preprocessed".
    "graphbolt": ExportFormat(
        export_graphbolt, _kind(METADATA_NAME, "nodes", "edges", "sets", "*.txt.gz", "preprocessed")
    ),
}


@dataclass(frozen=True, slots=True, repr=False)
class Exported(Display):
    """Result of an export.

    path: the folder, or the file of embeddings.
    format_name: a key of EXPORTS, or the suffix of a file of embeddings.
    files: bytes of each file, by its path in the folder.
    left_out: attributes that the format does not store.
    """

    path: Path
    format_name: str
    files: dict[str, int]
    left_out: tuple[str, ...] = ()

    def rows(self) -> list[Row]:
        """Return a row per file, and one of what is not exported."""
        rows = [(name, format_bytes(num_bytes)) for name, num_bytes in self.files.items()]
        if self.left_out:
            why = f"format '{self.format_name}' does not store them; use --format numpy"
            rows.append(("not exported", f"{', '.join(self.left_out)} ({why})"))
        return rows

    def _title(self) -> str:
        return f"Exported to {self.path}"

    def _parts(self) -> Sequence[Part]:
        return [Facts(self.rows())]


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
    overwrite: bool = False,
) -> Exported:
    """Write a dataset as a folder that appears complete, or not at all.

    Nodes are numbered by their original ids if these are 0 to nodes - 1, else by the ids' ranks; the ids are then
    written too.

    format_name: a key of EXPORTS.
    budget: memory; default: half of the free memory. Rows in hot order are moved back within it, through files in the
    destination if they do not fit.
    threads: default: all cores.
    overwrite: whether an export of the same format at the destination is replaced.

    Raises ConfigError for data that the format cannot store, BudgetError, DestinationError, FormatError for damage.
    """
    if format_name not in EXPORTS:
        raise ConfigError(f"--format '{format_name}' is unknown; use one of {', '.join(EXPORTS)}")
    budget = budget or Budget(default_memory_bytes())
    budget.require({WRITING: WRITER_BYTES})
    tools = TaskTools(engine, injector)
    # A lower bound: features of bfloat16 and int8 become larger, and so do edges of 32 bits.
    require_free_space(require_parent(destination), sum(entry.num_bytes for entry in dataset.manifest.files.values()))
    with ExitStack() as held:
        kind = EXPORTS[format_name].folders
        staged = held.enter_context(StagedDirectory(destination, kind, overwrite=overwrite, injector=injector))
        folder = WorkFolder(staged.path / "work", injector)
        # After an error the work folder is removed with the staged folder, so that nothing is reported as kept.
        held.callback(folder.__exit__, None, None, None)
        held.enter_context(budget.reserve(WRITING, WRITER_BYTES))
        work = WorkTools(folder, tools, budget, threads or default_threads(), progress or silent, held)
        EXPORTS[format_name].write(dataset, DatasetFiles(staged.path, engine, injector), work)
        with destination_errors(destination):
            folder.remove()
        files = {
            str(path.relative_to(staged.path)): path.stat().st_size
            for path in sorted(staged.path.rglob("*"))
            if path.is_file()
        }
        staged.publish()
    keeps = EXPORTS[format_name].keeps
    left_out = tuple(name for name, info in _attributes(dataset) if not keeps(name, info))
    return Exported(destination, format_name, files, left_out)


def _attributes(dataset: Dataset) -> Iterator[tuple[str, AttributeInfo]]:
    for nodes in dataset.nodes.values():
        yield from own_attributes(nodes.attributes).items()
    for edges in dataset.edges.values():
        yield from own_attributes(edges.attributes).items()
