"""Packing before training: epochs are sampled, laid out and packed into a folder that training reads (DiskGNN).

Every epoch's batches first go to a trace. By the first epoch's trace, the most accessed rows are chosen to stay in
memory. The disk budget determines the length of segments. Then the batches are packed. pack_steps.py has the steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from diskhop._native import BufferPool, Engine
from diskhop.batches.trace import TraceSettings
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.derived.scratch import free_bytes
from diskhop.errors import ConfigError
from diskhop.io.atomic import Injector, destination_errors, make_directories, rename, sync_directory
from diskhop.pipeline.pack_steps import LayoutBuilder, Samples
from diskhop.plans import SampledPlan
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools, WorkFolder
from diskhop.sampling.accesses import COUNTING_BYTES_PER_NODE
from diskhop.stores.packed.layout import Layout, open_layout, samples_of
from diskhop.stores.packed.segments import LAYING_OUT_BYTES_PER_ROW


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """A packed layout. steps: seconds and bytes of each step that made it, as in result.json; empty if it was found."""

    layout: Layout
    steps: list[dict[str, Any]]


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
) -> Packed:
    """Make a packed layout in the plan's scratch folder, or find an earlier one there.

    disk_bytes: bytes for the layout, and for a trace while it is made; None: half of the free space.
    log: called with a line per epoch before it is packed: its disk space and reads.
    Raises ConfigError for a disk budget too small, naming one that works, and DestinationError for a full disk. The
    same call later resumes after the last complete file.
    """
    table = dataset.features()
    if table is None:
        raise ConfigError(f"{dataset.path}: has no features to pack; train without --store packed")
    scratch = Path(plan.share.scratch)
    settings = {epoch: samples.settings(dataset, epoch) for epoch in samples.epochs}
    key_text = _key_text(samples, settings, plan, disk_bytes)
    destination = scratch / f"packed-{xxhash.xxh3_64_intdigest(key_text.encode()):016x}"
    if destination.exists():
        return Packed(open_layout(destination, table), [])
    make_directories(scratch, injector)
    with ExitStack() as stack:
        for name in ("sampling", "sampled ahead", "staging", "packing"):
            stack.enter_context(budget.reserve(name, plan.reserved.get(name, 0)))
        row_bytes = max(COUNTING_BYTES_PER_NODE, LAYING_OUT_BYTES_PER_ROW)
        stack.enter_context(budget.reserve("laying out", row_bytes * table.num_rows))
        work = stack.enter_context(WorkFolder(destination, injector))
        pool = BufferPool(plan.reserved["sampled ahead"] + plan.reserved["staging"] + plan.reserved["packing"])
        builder = LayoutBuilder(
            dataset=dataset,
            table=table,
            plan=plan,
            budget=budget,
            samples=samples,
            settings=settings,
            disk_bytes=free_bytes(scratch) // 2 if disk_bytes is None else disk_bytes,
            progress=progress,
            log=log,
            tools=TaskTools(engine, injector, pool),
        )
        builder.build(work.stage("samples", key_text), work.stage("packed", key_text), work.path)
        with destination_errors(destination):
            rename(work.path / "packed", destination, injector)
            sync_directory(scratch, injector)
        work.remove()
    return Packed(open_layout(destination, table), builder.steps)


def _key_text(
    samples: Samples, settings: Mapping[int, TraceSettings], plan: SampledPlan, disk_bytes: int | None
) -> str:
    """Everything that determines the bytes of a layout, which its folder is named by."""
    key = {
        "samples": samples_of(settings[samples.epochs[0]]),
        "epochs": [(epoch, each.seeds_hash) for epoch, each in settings.items()],
        "batches": samples.num_batches,
        "rows in memory": plan.share.cache_rows,
        "disk": disk_bytes,
    }
    return json.dumps(key, sort_keys=True)
