"""A format of predictions with the table that it writes: opened once here, and again where another process writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.predicting.columns import Outputs, TableName
from diskhop.predicting.files import ByteSink, Format, PredictionFile
from diskhop.predicting.npy import Arrays
from diskhop.predicting.parquet import ParquetParts
from diskhop.predicting.rows import RowTable
from diskhop.predicting.sizes import OutputLimits
from diskhop.predicting.table import PredictionTable
from diskhop.predicting.tsv import TsvParts
from diskhop.protocols import NodeRows
from diskhop.runtime.jobs import Share, SharedArray
from diskhop.runtime.progress import silent
from diskhop.runtime.tasks import OpenedWorkFolder, TaskTools
from diskhop.runtime.work_tools import WorkTools

# Each has a line in sizes.py too.
_WRITERS: Mapping[str, Callable[[PredictionTable, WorkTools], Format]] = {
    "parquet": ParquetParts,
    "npy": Arrays,
    "tsv": TsvParts,
}


class OpenedFormat:
    """A format and its table (see Format, PredictionTable). Its memory stays reserved until work.held closes.

    held_bytes: the memory that it has reserved.
    """

    def __init__(
        self,
        name: str,
        dataset: Dataset,
        outputs: Outputs,
        tables: Mapping[TableName, RowTable],
        nodes: NodeRows | None,
        key: str,
        limits: OutputLimits | None,
        work: WorkTools,
    ) -> None:
        before_bytes = work.budget.available_bytes
        self.table = PredictionTable(dataset, outputs, tables, nodes, key, work, limits)
        self._format = _WRITERS[name](self.table, work)
        self.held_bytes = before_bytes - work.budget.available_bytes
        self._nodes = nodes
        self._opened_with = (name, dataset, outputs, dict(tables), key, limits)
        self._work = work

    @property
    def most_threads(self) -> int | None:
        """See Format."""
        return self._format.most_threads

    @property
    def files(self) -> Sequence[PredictionFile]:
        """See Format."""
        return self._format.files

    def write(self, file: PredictionFile, sink: ByteSink, threads: int) -> None:
        """See Format."""
        self._format.write(file, sink, threads)

    def for_workers(self, share: Share) -> partial[OpenedFormat]:
        """See jobs.py: another process opens the table again, in the same work folder."""
        nodes = None if self._nodes is None else SharedArray(self._nodes)
        work = self._work
        return partial(
            _open_again,
            *self._opened_with,
            nodes,
            work.folder.path,
            work.tools.engine,
            work.budget.total_bytes,
            work.threads,
        )


def _open_again(
    name: str,
    dataset: Dataset,
    outputs: Outputs,
    tables: Mapping[TableName, RowTable],
    key: str,
    limits: OutputLimits | None,
    nodes: SharedArray | None,
    folder: Path,
    engine: Engine,
    memory_bytes: int,
    threads: int,
) -> OpenedFormat:
    rows = None if nodes is None else NodeRows(nodes.array)
    # The process that plans reserves the memory of all.
    tools, budget = TaskTools(engine), Budget(memory_bytes)
    work = WorkTools(OpenedWorkFolder(folder), tools, budget, threads, silent, ExitStack())
    return OpenedFormat(name, dataset, outputs, tables, rows, key, limits, work)
