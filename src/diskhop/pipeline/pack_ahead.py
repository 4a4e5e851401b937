"""Packing ahead: epochs are sampled, laid out and packed into a folder that training reads (DiskGNN, section 4).

Epoch after epoch: its batches go to a trace; by the first one's, the rows asked for most are chosen to stay in memory;
the length of segments follows from the disk that is allowed; then the batches are packed. Each file is a task
(tasks.py): after a crash the same command goes on from the last one that was finished.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, RowReader
from diskhop.batches.trace import TraceReader, TraceSettings, TraceWriter, hash_seeds
from diskhop.budget import Budget, format_bytes
from diskhop.counters import FetchCounts
from diskhop.dataset.dataset import Dataset
from diskhop.derived.clean import LAYOUT_FILE
from diskhop.derived.scratch import free_bytes
from diskhop.errors import ConfigError, DiskBudgetError
from diskhop.io.atomic import (
    Injector,
    announce,
    destination_errors,
    make_directories,
    rename,
    require_free_space,
    sync_directory,
    write_file,
)
from diskhop.io.streams import SequentialWriter
from diskhop.plans import SampledPlan
from diskhop.policies.segments import choose_segment_size
from diskhop.policies.static import most_accessed
from diskhop.protocols import NodeIds, Purpose, SampledBatch, Table
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools, WorkFolder, run_tasks
from diskhop.sampling.accesses import COUNTING_BYTES_PER_NODE
from diskhop.sampling.neighbor import NeighborSampler
from diskhop.sampling.open import open_plan_topology
from diskhop.stores.packed.chunk import BLOCK_BYTES, Chunk, aligned, slot_bytes_for
from diskhop.stores.packed.layout import (
    HELD_FILE,
    HELD_IDS_FILE,
    STEPS_FILE,
    Layout,
    PackedEpoch,
    encode_layout,
    epoch_file,
    hash_held,
    open_layout,
    samples_of,
)
from diskhop.stores.packed.pack_file import encode_end, open_pack_file, settings_of
from diskhop.stores.packed.packer import Packer
from diskhop.stores.packed.resident import hold_listed
from diskhop.stores.packed.segments import LAYING_OUT_BYTES_PER_ROW, SharedRows
from diskhop.stores.packed.sizes import own_rows
from diskhop.stores.resources import StoreResources, empty_rows, open_reader

# Sampled ahead of the trace's writer, by each thread that samples.
_SAMPLED_AHEAD = 2
_COPIED_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Samples:
    """Batches to be made ahead: num_batches of each epoch. seeds: of an epoch, in their order."""

    seeds: Callable[[int], NodeIds]
    epochs: tuple[int, ...]
    fanouts: tuple[int, ...]
    batch_size: int
    seed: int
    num_batches: int

    def settings(self, dataset: Dataset, epoch: int) -> TraceSettings:
        """What makes an epoch's batches."""
        return TraceSettings(
            dataset_hash=dataset.hash,
            fanouts=self.fanouts,
            seed=self.seed,
            purpose=Purpose.TRAIN,
            epoch=epoch,
            batch_size=self.batch_size,
            seeds_hash=hash_seeds(self.seeds(epoch)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """A layout, and what making it took: a step each, as result.json has them."""

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
    tell: Callable[[str], None],
    injector: Injector | None = None,
) -> Packed:
    """Make a packed layout in the plan's scratch folder, or find it there, made before.

    disk_bytes: that the layout, and a trace while it is made, may take; None: half of what is free. tell: hears of
    each epoch, before it is packed, what it will take and read. Raises ConfigError for a disk budget too small, naming
    one that would do, DestinationError for a full disk; what is finished by then is kept, and found by the same call.
    """
    table = dataset.features()
    if table is None:
        raise ConfigError(f"{dataset.path}: has no features to pack; train without --store packed")
    scratch = Path(plan.scratch)
    settings = {epoch: samples.settings(dataset, epoch) for epoch in samples.epochs}
    key = {
        "samples": samples_of(settings[samples.epochs[0]]),
        "epochs": [(epoch, each.seeds_hash) for epoch, each in settings.items()],
        "batches": samples.num_batches,
        "rows in memory": plan.cache_rows,
        "disk": disk_bytes,
    }
    key_text = json.dumps(key, sort_keys=True)
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
        tools = TaskTools(engine, injector, pool)
        allowed_bytes = free_bytes(scratch) // 2 if disk_bytes is None else disk_bytes
        making = LayoutBuilder(dataset, table, plan, budget, samples, settings, allowed_bytes, progress, tell, tools)
        making.make(work.stage("samples", key_text), work.stage("packed", key_text), work.path)
        with destination_errors(destination):
            rename(work.path / "packed", destination, injector)
            sync_directory(scratch, injector)
        work.remove()
    return Packed(open_layout(destination, table), making.steps)


class _Step(NamedTuple):
    """A task that makes a file by a function."""

    name: str
    make: Callable[[Path], None]

    def write(self, path: Path, _tools: TaskTools) -> None:
        """See tasks.Task."""
        self.make(path)


@dataclass(slots=True, eq=False)
class LayoutBuilder:
    """A layout in the making; see pack_epochs(). settings: what makes the batches of each epoch."""

    dataset: Dataset
    table: Table
    plan: SampledPlan
    budget: Budget
    samples: Samples
    settings: dict[int, TraceSettings]
    disk_bytes: int
    progress: Progress
    tell: Callable[[str], None]
    tools: TaskTools
    steps: list[dict[str, Any]] = field(default_factory=list)

    def make(self, traces: Path, folder: Path, scratch: Path) -> None:
        """Make everything that is missing in `folder`, its manifest last."""
        held: NodeIds | None = None
        for epoch in self.samples.epochs:
            packed, trace = folder / epoch_file(epoch), traces / f"trace-{epoch}.bin"
            needs_trace = not packed.exists() or not (folder / HELD_IDS_FILE).exists()
            if needs_trace:
                self._run(_Step(trace.name, partial(self._sample, epoch)), traces)
            if held is None:
                self._run(_Step(HELD_IDS_FILE, partial(self._choose_held, epoch, trace)), folder)
                held = np.fromfile(folder / HELD_IDS_FILE, "<i8")
                self._run(_Step(HELD_FILE, partial(self._copy_held, held)), folder)
            if needs_trace:
                self._run(_Step(packed.name, partial(self._pack, epoch, trace, held, scratch)), folder)
            if trace.exists():  # its room is the next one's
                announce(self.tools.injector, "rename", trace)
                trace.unlink()
        assert held is not None
        self._write_manifest(folder, held)

    def _run(self, step: _Step, folder: Path) -> None:
        run_tasks([step], folder, self.tools, threads=1)

    def _note(self, step: str, seconds: float, bytes_read: int, bytes_written: int) -> None:
        self.steps.append({"step": step, "seconds": seconds, "bytes_read": bytes_read, "bytes_written": bytes_written})

    def _open_trace(self, epoch: int, path: Path) -> TraceReader:
        numbers = range(self.samples.num_batches)
        return TraceReader(path, self.settings[epoch], self.tools.engine, self.tools.pool, numbers)

    def _sample(self, epoch: int, path: Path) -> None:
        started = time.perf_counter()
        samples, tools = self.samples, self.tools
        seeds, num_batches = samples.seeds(epoch), samples.num_batches
        bytes_read = 0
        with open_plan_topology(self.dataset, self.plan, tools.engine, self.budget, tools.pool) as topology:
            sampler = NeighborSampler(topology, samples.fanouts, samples.seed, tools.pool)

            def sample(number: int) -> SampledBatch:
                of_batch = seeds[number * samples.batch_size :][: samples.batch_size]
                return sampler.sample(of_batch, purpose=Purpose.TRAIN, epoch=epoch, number=number)

            settings, num_nodes = self.settings[epoch], topology.num_nodes
            with TraceWriter(path, settings, num_nodes, tools.engine, tools.pool, range(num_batches)) as writer:
                for batch in _in_order(sample, num_batches, self.plan.sampling_threads):
                    writer.append(batch)
                    bytes_read += batch.topology_bytes_read
                    self.progress(f"sampling epoch {epoch}", len(writer), num_batches)
                writer.finish()
                num_bytes = writer.num_bytes
        self._note(f"sample epoch {epoch}", time.perf_counter() - started, bytes_read, num_bytes)

    def _choose_held(self, epoch: int, trace_path: Path, path: Path) -> None:
        """The rows that an epoch asks for most: where memory is the faster, those are worth it most."""
        counts = np.zeros(self.table.num_rows, np.uint32)
        trace = self._open_trace(epoch, trace_path)
        for index in range(len(trace)):
            counts[trace.node_ids(index)] += 1
        most_accessed(counts, self.plan.cache_rows).astype("<i8").tofile(path)

    def _copy_held(self, held: NodeIds, path: Path) -> None:
        started = time.perf_counter()
        counts = FetchCounts()
        rows_per_piece = max(1, _COPIED_BYTES // self.table.row_bytes)
        resources = StoreResources(
            engine=self.tools.engine,
            pool=self.tools.pool,
            max_gap_bytes=self.plan.max_gap_bytes,
            max_read_bytes=self.plan.max_read_bytes,
            staging_bytes=self.plan.staging_bytes,
            threads=self.plan.threads,
            cache_rows=0,
        )
        reader = open_reader(RowReader, self.table, resources, self.plan.max_gap_bytes)
        with SequentialWriter(path, self.tools.engine, self.tools.pool) as writer:
            for begin in range(0, len(held), rows_per_piece):
                piece = held[begin : begin + rows_per_piece]
                rows = empty_rows(self.tools.pool, len(piece), self.table.row_bytes)
                counts.add_reads(*reader.read(piece, rows))
                writer.append(rows.reshape(-1))
            writer.finish()
        num_bytes = len(held) * self.table.row_bytes
        self._note("copy rows in memory", time.perf_counter() - started, counts.bytes_read, num_bytes)

    def _pack(self, epoch: int, trace_path: Path, held: NodeIds, scratch: Path, path: Path) -> None:
        started = time.perf_counter()
        trace = self._open_trace(epoch, trace_path)
        is_held = np.zeros(self.table.num_rows, np.bool_)
        is_held[held] = True
        packer = Packer(
            self.table,
            hold_listed(held, self.table.num_rows),
            self.tools.engine,
            self.tools.pool,
            self.plan.partition_bytes,
            self.plan.threads,
        )
        segment = self._choose_segment(trace, is_held, held)
        shared = SharedRows(trace, is_held, segment, self.table, packer.partition_rows)
        chunks = lay_out_chunks(shared, trace, self.table.row_bytes, len(held))
        settings = {**settings_of(self.settings[epoch], hash_held(held)), "segment": segment}
        end = encode_end(chunks, shared.num_rows, settings)
        num_bytes = chunks[-1].end + len(end)
        self._note(f"lay out epoch {epoch}", time.perf_counter() - started, 0, 0)
        self.tell(describe_epoch(epoch, chunks, shared, segment, num_bytes, self.table))
        require_free_space(path.parent, num_bytes)
        total, done = len(chunks) * (1 + packer.num_partitions), 0

        def keep_on() -> None:
            nonlocal done
            done = min(done + 1, total)
            self.progress(f"packing epoch {epoch}", done, total)

        counts = packer.pack(trace, chunks, path, scratch, keep_on, shared, trace.record, end)
        self.progress(f"packing epoch {epoch}", total, total)
        self._note(f"pack epoch {epoch}", counts.seconds, counts.bytes_read, counts.bytes_written)

    def _choose_segment(self, trace: TraceReader, is_held: NDArray[np.bool_], held: NodeIds) -> int:
        """How many batches share rows, so that an epoch takes its part of the disk."""
        row_bytes = self.table.row_bytes
        headers = [trace.header(index) for index in range(len(trace))]
        # Beside rows: heads, and each batch's last block and shared list; the file's end; the trace while it is packed.
        num_nodes = sum(header.num_nodes for header in headers)
        record_bytes = sum(header.num_bytes for header in headers)
        beside_bytes = 2 * record_bytes + 8 * num_nodes + 4 * BLOCK_BYTES * (len(headers) + 1)
        bytes_per_epoch = (self.disk_bytes - len(held) * row_bytes) // len(self.samples.epochs)
        most_rows = max(0, bytes_per_epoch - beside_bytes) // row_bytes
        try:
            return choose_segment_size(trace, is_held, most_rows).num_batches
        except DiskBudgetError as error:
            smallest = (error.smallest_rows * row_bytes + beside_bytes) * len(self.samples.epochs)
            smallest += len(held) * row_bytes
            raise ConfigError(
                f"--disk {format_bytes(self.disk_bytes)} is too small for {len(self.samples.epochs)} packed epochs: "
                f"the smallest that works is {-(-smallest // 1_000_000)}MB; or give more --cache or fewer --epochs"
            ) from None

    def _write_manifest(self, folder: Path, held: NodeIds) -> None:
        epochs = []
        for epoch in self.samples.epochs:
            path = folder / epoch_file(epoch)
            settings = self.settings[epoch]
            source = open_pack_file(path, settings_of(settings, hash_held(held)))
            epochs.append(
                PackedEpoch(
                    epoch=epoch,
                    seeds_hash=settings.seeds_hash,
                    num_batches=len(source.chunks),
                    segment=int(str(source.settings["segment"])),
                    most_own_rows=max(own_rows(self.table, each.num_packed, each.num_shared) for each in source.chunks),
                    num_bytes=path.stat().st_size,
                    bytes_needed=sum(each.num_own * each.row_bytes + each.record_bytes for each in source.chunks),
                )
            )
            source.close()
        layout = Layout(
            path=folder,
            samples=samples_of(self.settings[self.samples.epochs[0]]),
            row_bytes=self.table.row_bytes,
            num_held=len(held),
            held_hash=hash_held(held),
            held_checksum=checksum_of(folder / HELD_FILE),
            epochs=tuple(epochs),
        )
        write_file(folder / STEPS_FILE, (json.dumps(self.steps, indent=1) + "\n").encode(), self.tools.injector)
        write_file(folder / LAYOUT_FILE, encode_layout(layout), self.tools.injector)


def lay_out_chunks(shared: SharedRows, trace: TraceReader, row_bytes: int, num_held: int) -> list[Chunk]:
    """Where each batch's chunk goes, behind the rows that are shared."""
    chunks: list[Chunk] = []
    for index, (num_nodes, num_packed, num_shared) in enumerate(shared.own):
        header = trace.header(index)
        chunks.append(
            Chunk(
                offset=chunks[-1].end if chunks else aligned(shared.num_rows * row_bytes),
                number=header.number,
                num_nodes=num_nodes,
                num_packed=num_packed,
                num_shared=num_shared,
                row_bytes=row_bytes,
                slot_bytes=slot_bytes_for(num_held + num_packed + num_shared),
                record_bytes=header.num_bytes,
            )
        )
    return chunks


def describe_epoch(
    epoch: int, chunks: Sequence[Chunk], shared: SharedRows, segment: int, num_bytes: int, table: Table
) -> str:
    """What an epoch will take on the disk and read, for people, before anything is written."""
    needed_bytes = sum(each.num_own * each.row_bytes + each.record_bytes for each in chunks)
    packed_bytes = sum(each.head_bytes + aligned(each.rows_bytes) for each in chunks)
    times = num_bytes / max(1, table.num_rows * table.row_bytes)
    text = f"epoch {epoch}: {len(chunks)} batches, {format_bytes(num_bytes)} on the disk, {times:.2f} of the table; "
    if shared.num_rows == 0:
        ratio = packed_bytes / max(needed_bytes, 1)
        return text + f"{format_bytes(packed_bytes)} to read, {ratio:.3f} of what is needed"
    shared_bytes = sum(each.num_shared * each.row_bytes for each in chunks)
    return text + (
        f"segments of {segment} batches share {format_bytes(shared.num_rows * table.row_bytes)}; "
        f"{format_bytes(packed_bytes + shared_bytes)} to read and what lies between rows that are shared"
    )


def _in_order(sample: Callable[[int], SampledBatch], num_batches: int, threads: int) -> Iterator[SampledBatch]:
    """Batches 0, 1, 2 ..., sampled by several threads."""
    with ThreadPoolExecutor(threads, thread_name_prefix="sample") as pool:
        ahead: deque[Future[SampledBatch]] = deque()
        try:
            for number in range(num_batches):
                ahead.append(pool.submit(sample, number))
                if len(ahead) > _SAMPLED_AHEAD * threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def checksum_of(path: Path) -> int:
    """xxh3 of a file."""
    hasher = xxhash.xxh3_64()
    with path.open("rb") as file:
        while block := file.read(_COPIED_BYTES):
            hasher.update(block)
    return hasher.intdigest()
