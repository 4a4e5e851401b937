"""The epochs of a packed layout as parts of a job that any process can run (runtime/jobs.py), in any order."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine
from diskhop.batches.trace import TraceSettings
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.pipeline.pack_steps import LayoutBuilder, Samples
from diskhop.plans import SampledPlan
from diskhop.runtime.jobs import Share, SharedArray
from diskhop.runtime.progress import silent
from diskhop.runtime.tasks import TaskTools, run_tasks, writer_name
from diskhop.stores.packed.layout import epoch_file


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackJob:
    """Epochs to sample, or to pack once the resident rows are known.

    epochs: the epochs.
    dataset, plan, samples, settings, disk_bytes, traces, folder, scratch: see LayoutBuilder.
    resident: ids of the rows in memory; None to sample.
    budget_bytes, pool_bytes: memory of a process.
    engine: I/O engine.
    """

    epochs: tuple[int, ...]
    dataset: Dataset
    plan: SampledPlan
    samples: Samples
    settings: dict[int, TraceSettings]
    disk_bytes: int
    resident: NDArray[np.int64] | None = field(repr=False)
    traces: Path
    folder: Path
    scratch: Path
    budget_bytes: int
    pool_bytes: int
    engine: Engine

    @property
    def num_parts(self) -> int:
        """See Job."""
        return len(self.epochs)

    @property
    def title(self) -> str:
        """Name of the work, for progress."""
        return "sampling epochs" if self.resident is None else "packing epochs"

    def run(self, number: int, count: Callable[[int], None]) -> None:
        """Sample or pack an epoch (see Job), and write its steps and lines for take_notes()."""
        table = self.dataset.feature_table()
        assert table is not None, "datasets without features are refused"
        lines: list[str] = []
        builder = LayoutBuilder(
            dataset=self.dataset,
            table=table,
            plan=self.plan,
            budget=Budget(self.budget_bytes),
            samples=self.samples,
            settings=self.settings,
            disk_bytes=self.disk_bytes,
            traces=self.traces,
            folder=self.folder,
            scratch=self.scratch,
            progress=silent,
            log=lines.append,
            tools=TaskTools(self.engine, pool=BufferPool(self.pool_bytes), writer=writer_name()),
        )
        epoch = self.epochs[number]
        if self.resident is None:
            builder.sample_epoch(epoch)
        else:
            builder.pack_epoch(epoch, self.resident)
        notes = _Notes(self._notes_path(epoch).name, json.dumps({"steps": builder.steps, "lines": lines}))
        run_tasks([notes], self.traces, builder.tools, threads=1)

    def take_notes(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the steps of all epochs, as in result.json, and their lines for people; remove the files."""
        steps, lines = [], []
        for epoch in self.epochs:
            path = self._notes_path(epoch)
            notes = json.loads(path.read_bytes())
            path.unlink()
            steps += notes["steps"]
            lines += notes["lines"]
        return steps, lines

    def for_workers(self, share: Share) -> partial[PackJob]:
        """See jobs.py: processes map the resident rows."""
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "resident"}
        return partial(_open_job, None if self.resident is None else SharedArray(self.resident), **facts)

    def _notes_path(self, epoch: int) -> Path:
        return self.traces / f"{epoch_file(epoch)}.notes"


class _Notes(NamedTuple):
    """The task that writes the notes of an epoch; those of the process that packed it stay."""

    name: str
    content: str

    def write(self, path: Path, _tools: TaskTools) -> None:
        """See tasks.Task."""
        path.write_text(self.content)


def _open_job(resident: SharedArray | None, **facts: Any) -> PackJob:
    return PackJob(resident=None if resident is None else resident.array, **facts)
