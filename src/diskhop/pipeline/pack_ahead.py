"""Packing before training: epochs are sampled, laid out and packed into a folder that training reads (DiskGNN).

Every epoch's batches first go to a trace. By the traces of all epochs, the most accessed rows are chosen to stay in
memory. The disk budget determines the length of segments. Then the batches are packed. pack_steps.py has the steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import xxhash

from diskhop._native import BufferPool, Engine
from diskhop.batches.trace import TraceSettings
from diskhop.budget import Budget, format_bytes
from diskhop.dataset.dataset import Dataset
from diskhop.derived.scratch import free_bytes
from diskhop.display import Display, Facts, Part, Row
from diskhop.errors import ConfigError
from diskhop.io.atomic import Injector, make_directories
from diskhop.pipeline.pack_job import PackJob
from diskhop.pipeline.pack_steps import LayoutBuilder, Samples
from diskhop.plans import SampledPlan
from diskhop.protocols import NodeIds, Table
from diskhop.runtime.blocks import threads_that_fit
from diskhop.runtime.jobs import Executor
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools, WorkFolder, run_job
from diskhop.sampling.accesses import COUNTING_BYTES_PER_NODE
from diskhop.stores.packed.layout import Layout, open_layout, samples_of
from diskhop.stores.packed.segments import LAYING_OUT_BYTES_PER_ROW

# Memory that is in buffers of one pool, by its names in the plan.
_POOL = ("sampled ahead", "staging", "packing")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Packed(Display):
    """A packed layout. steps: seconds and bytes of each step that made it, as in result.json; empty if it was found."""

    layout: Layout
    steps: list[dict[str, Any]]

    def rows(self) -> list[Row]:
        """Return names and texts of lines for people."""
        layout, seconds = self.layout, sum(step["seconds"] for step in self.steps)
        num_batches = sum(epoch.num_batches for epoch in layout.epochs)
        per_epoch = f"{seconds:.1f} s, {seconds / len(layout.epochs):.1f} s per epoch"
        return [
            ("packed" if self.steps else "packed before", f"{layout.path}, {format_bytes(layout.num_bytes)}"),
            ("epochs", f"{len(layout.epochs)}, {num_batches:,} batches"),
            ("rows in memory", f"{layout.num_held:,}"),
            *([("took", per_epoch)] if self.steps else []),
        ]

    def _title(self) -> str:
        return "Packed batches"

    def _parts(self) -> Sequence[Part]:
        return [Facts(self.rows())]


def pack_epochs(
    dataset: Dataset,
    plan: SampledPlan,
    budget: Budget,
    samples: Samples,
    engine: Engine,
    *,
    disk_bytes: int | None,
    progress: Progress,
    log: Callable[[str], None],
    injector: Injector | None = None,
    executor: Executor | None = None,
) -> Packed:
    """Make a packed layout in the plan's scratch folder, or find an earlier one there.

    disk_bytes: bytes for the layout, and for the traces while it is made; None: half of the free space.
    log: called with a line per epoch: its disk space and reads.
    executor: where epochs are sampled and packed, as many at a time as fit the memory; None: here.
    Raises ConfigError for a disk budget too small, naming one that works, and DestinationError for a full disk. The
    same call later resumes after the last complete file.
    """
    table = dataset.feature_table()
    if table is None:
        raise ConfigError(f"{dataset.path}: has no features to pack; train without --store packed")
    scratch = Path(plan.share.scratch)
    settings = {epoch: samples.settings(dataset, epoch) for epoch in samples.epochs}
    key_text = _key_text(samples, settings, plan, disk_bytes)
    destination = scratch / f"packed-{xxhash.xxh3_64_intdigest(key_text.encode()):016x}"
    if destination.exists():
        WorkFolder(destination, injector).remove_left()
        return Packed(open_layout(destination, table), [])
    make_directories(scratch, injector)
    with ExitStack() as stack:
        for name, num_bytes in _own_bytes(plan, table).items():
            stack.enter_context(budget.reserve(name, num_bytes))
        work = stack.enter_context(WorkFolder(destination, injector))
        work.lock()
        if destination.exists():  # another process has just finished
            work.remove()
            return Packed(open_layout(destination, table), [])
        builder = LayoutBuilder(
            dataset=dataset,
            table=table,
            plan=plan,
            budget=budget,
            samples=samples,
            settings=settings,
            disk_bytes=free_bytes(scratch) // 2 if disk_bytes is None else disk_bytes,
            traces=work.stage("samples", key_text),
            folder=work.stage("packed", key_text),
            scratch=work.path,
            progress=progress,
            log=log,
            tools=TaskTools(engine, injector, BufferPool(_pool_bytes(plan)), executor=executor),
        )
        if not builder.has_resident:
            _run_elsewhere(builder, None)
        resident = builder.make_resident()
        _run_elsewhere(builder, resident)
        for epoch in samples.epochs:
            builder.pack_epoch(epoch, resident)
        builder.write_manifest(resident)
        work.publish(builder.folder)
    return Packed(open_layout(destination, table), builder.steps)


def _pool_bytes(plan: SampledPlan) -> int:
    """Memory of the pool of a process that packs."""
    return sum(plan.reserved[name] for name in _POOL)


def _own_bytes(plan: SampledPlan, table: Table) -> dict[str, int]:
    """Memory that a process reserves to sample and pack, by name, without that of the neighbour lists."""
    row_bytes = max(COUNTING_BYTES_PER_NODE, LAYING_OUT_BYTES_PER_ROW)
    planned = {name: plan.reserved.get(name, 0) for name in ("sampling", *_POOL)}
    return {**planned, "laying out": row_bytes * table.num_rows}


def _run_elsewhere(builder: LayoutBuilder, resident: NodeIds | None) -> None:
    """Sample epochs in the processes of the executor, or pack those that are missing once the resident rows are known.

    As many run at a time as fit the memory. This process only waits, so one of them takes its part of the memory. None
    do if only one process fits.
    """
    plan, tools, budget = builder.plan, builder.tools, builder.budget
    epochs = tuple(epoch for epoch in builder.samples.epochs if not builder.is_packed(epoch))
    own_bytes = _own_bytes(plan, builder.table)
    held_bytes = sum(own_bytes.values())
    lists = set(plan.reserved) - set(plan.share.reserves) - set(own_bytes)
    process_bytes = held_bytes + sum(plan.reserved[name] for name in lists)
    most_bytes = budget.available_bytes + held_bytes
    processes = threads_that_fit(min(tools.processes, len(epochs)), most_bytes, lambda n: n * process_bytes)
    if processes == 1:
        return
    job = PackJob(
        epochs=epochs,
        dataset=builder.dataset,
        plan=replace(plan, threads=max(1, plan.threads // processes)),
        samples=builder.samples,
        settings=builder.settings,
        disk_bytes=builder.disk_bytes,
        resident=resident,
        traces=builder.traces,
        folder=builder.folder,
        scratch=builder.scratch,
        budget_bytes=most_bytes // processes,
        pool_bytes=_pool_bytes(plan),
        engine=tools.engine,
    )
    with budget.reserve("packing epochs", processes * process_bytes - held_bytes):
        run_job(job, builder.traces, tools, threads=processes, here=1, progress=partial(builder.progress, job.title))
    steps, lines = job.take_notes()
    builder.steps += steps
    for line in lines:
        builder.log(line)


def _key_text(
    samples: Samples, settings: Mapping[int, TraceSettings], plan: SampledPlan, disk_bytes: int | None
) -> str:
    """Everything that determines the bytes of a layout, which its folder is named by."""
    key = {
        "samples": samples_of(settings[samples.epochs[0]]),
        "epochs": [(epoch, each.seeds_hash) for epoch, each in settings.items()],
        "batches": samples.num_batches,
        "rows in memory": plan.num_resident,
        "chosen by": "all epochs",
        "disk": disk_bytes,
    }
    return json.dumps(key, sort_keys=True)
