"""The steps of packing a layout: sample an epoch, choose and copy the resident rows, pack, write the manifest.

Each step makes one file as a task (runtime/tasks.py). After a crash, the same call resumes after the last complete
file.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop._native import RowReader
from diskhop.batches.trace import TraceReader, TraceSettings, TraceWriter
from diskhop.budget import Budget, format_bytes
from diskhop.counters import FetchCounts
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.files import checksum_of
from diskhop.derived.clean import LAYOUT_FILE
from diskhop.errors import ConfigError, DiskBudgetError
from diskhop.io.atomic import announce, require_free_space, write_file
from diskhop.io.streams import SequentialWriter
from diskhop.io.values import read_values
from diskhop.pipeline.batch import Pass
from diskhop.plans import SampledPlan
from diskhop.policies.segments import choose_segment_size
from diskhop.policies.static import most_accessed
from diskhop.protocols import NodeIds, SampledBatch, Table
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools, run_tasks
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.given_samples import GivenSamples
from diskhop.sampling.open import open_plan_topology
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.topology import Topology
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
    samples_of,
)
from diskhop.stores.packed.pack_file import encode_end, open_pack_file, settings_of
from diskhop.stores.packed.packer import Packer
from diskhop.stores.packed.resident import hold_listed
from diskhop.stores.packed.segments import SharedRows
from diskhop.stores.packed.sizes import own_rows
from diskhop.stores.resources import StoreResources, empty_rows, open_reader

# Batches that each sampling thread prefetches for the trace's writer.
_SAMPLED_AHEAD = 2
_COPIED_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Samples:
    """The batches to pack.

    pass_of: returns the pass of an epoch.
    epochs: epochs to pack.
    num_batches: batches per epoch.
    given: files of batches that were sampled elsewhere; None: they are sampled.
    """

    pass_of: Callable[[int], Pass]
    epochs: tuple[int, ...]
    num_batches: int
    given: GivenSamples | None = None

    def settings(self, dataset: Dataset, epoch: int) -> TraceSettings:
        """Everything that determines an epoch's batches."""
        return self.pass_of(epoch).trace_settings(dataset.hash)


class _Step(NamedTuple):
    """A task that makes a file with a function."""

    name: str
    make: Callable[[Path], None]

    def write(self, path: Path, _tools: TaskTools) -> None:
        """See tasks.Task."""
        self.make(path)


@dataclass(slots=True, kw_only=True, eq=False)
class LayoutBuilder:
    """Builds a packed layout: the resident rows, then every epoch, then the manifest; see pack_epochs().

    dataset, table: the graph and its features.
    plan, budget: how to sample and read, and the memory for it.
    samples: the batches.
    settings: everything that determines the batches, per epoch.
    disk_bytes: bytes that the layout may take.
    traces: folder of the traces.
    folder: folder of the layout.
    scratch: folder for temporary files.
    progress: called with step, done and total.
    log: called with a line per epoch before it is packed.
    tools: engine, fault injector and memory of the tasks.
    steps: seconds and bytes of each finished step, as in result.json.
    """

    dataset: Dataset
    table: Table
    plan: SampledPlan
    budget: Budget
    samples: Samples
    settings: dict[int, TraceSettings]
    disk_bytes: int
    traces: Path
    folder: Path
    scratch: Path
    progress: Progress
    log: Callable[[str], None]
    tools: TaskTools
    steps: list[dict[str, Any]] = field(default_factory=list)

    def make_resident(self) -> NodeIds:
        """Choose and copy the rows in memory by the traces of all epochs, unless that is done; return the ids."""
        if not self.has_resident:
            traces = {epoch: self.sample_epoch(epoch) for epoch in self.samples.epochs}
            self._run(_Step(HELD_IDS_FILE, partial(self._choose_resident, traces)), self.folder)
        resident: NodeIds = read_values(self.folder / HELD_IDS_FILE, "<i8")
        self._run(_Step(HELD_FILE, partial(self._copy_resident, resident)), self.folder)
        return resident

    @property
    def has_resident(self) -> bool:
        """Whether the rows in memory are chosen."""
        return (self.folder / HELD_IDS_FILE).exists()

    def is_packed(self, epoch: int) -> bool:
        """Return whether an epoch is packed."""
        return (self.folder / epoch_file(epoch)).exists()

    def sample_epoch(self, epoch: int) -> Path:
        """Return the trace of an epoch; sample it if it is missing."""
        trace = self._trace_path(epoch)
        self._run(_Step(trace.name, partial(self._sample, epoch)), self.traces)
        return trace

    def pack_epoch(self, epoch: int, resident: NodeIds) -> None:
        """Sample and pack an epoch, unless it is packed."""
        if not self.is_packed(epoch):
            pack = _Step(epoch_file(epoch), partial(self._pack, epoch, self.sample_epoch(epoch), resident))
            try:
                self._run(pack, self.folder)
            except OSError:
                if not self.is_packed(epoch):  # else another process has packed it, and removed the trace
                    raise
        trace = self._trace_path(epoch)
        if trace.exists():  # make space for the next one
            announce(self.tools.injector, "rename", trace)
            trace.unlink(missing_ok=True)

    def _trace_path(self, epoch: int) -> Path:
        return self.traces / f"trace-{epoch}.bin"

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
        wanted, num_batches = samples.pass_of(epoch), samples.num_batches
        bytes_read = 0
        with open_plan_topology(self.dataset, self.plan, tools.engine, self.budget, tools.pool) as topology:
            sample = self._draws(wanted, topology) if samples.given is None else self._reads(wanted, topology)
            settings, num_nodes = self.settings[epoch], topology.num_nodes
            with TraceWriter(path, settings, num_nodes, tools.engine, tools.pool, range(num_batches)) as writer:
                for batch in _in_order(sample, num_batches, self.plan.sampling_threads):
                    writer.append(batch)
                    bytes_read += batch.topology_bytes_read
                    self.progress(f"sampling epoch {epoch}", len(writer), num_batches)
                writer.finish()
                num_bytes = writer.num_bytes
        self._note(f"sample epoch {epoch}", time.perf_counter() - started, bytes_read, num_bytes)

    def _draws(self, wanted: Pass, topology: AnyTopology) -> Callable[[int], SampledBatch]:
        """Return what samples a batch of a pass by its number."""
        sampler = open_sampler(topology, wanted.sampler, wanted.seed, self.tools.pool)

        def sample(number: int) -> SampledBatch:
            seeds, epoch = wanted.seeds_of(number), wanted.epoch
            return sampler.sample(seeds.rows, purpose=wanted.purpose, epoch=epoch, number=number, times=seeds.times)

        return sample

    def _reads(self, wanted: Pass, topology: AnyTopology) -> Callable[[int], SampledBatch]:
        """Return what reads a batch that was sampled elsewhere by its number."""
        given, id_map = self.samples.given, self.dataset.id_map()
        assert given is not None
        assert isinstance(topology, Topology)
        return lambda number: given.read(wanted.epoch, number, topology, id_map)

    def _choose_resident(self, traces: Mapping[int, Path], path: Path) -> None:
        """Write the ids of the rows that all epochs access most, for memory and a device: they save the most reads."""
        counts = np.zeros(self.table.num_rows, np.uint32)
        for epoch, trace_path in traces.items():
            trace = self._open_trace(epoch, trace_path)
            for index in range(len(trace)):
                counts[trace.node_ids(index)] += 1
        most_accessed(counts, self.plan.num_resident).astype("<i8").tofile(path)

    def _copy_resident(self, resident: NodeIds, path: Path) -> None:
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
        )
        reader = open_reader(RowReader, self.table, resources, self.plan.max_gap_bytes)
        with SequentialWriter(path, self.tools.engine, self.tools.pool) as writer:
            for begin in range(0, len(resident), rows_per_piece):
                piece = resident[begin : begin + rows_per_piece]
                rows = empty_rows(self.tools.pool, len(piece), self.table.row_bytes)
                counts.add_reads(*reader.read(piece, rows))
                writer.append(rows.reshape(-1))
            writer.finish()
        num_bytes = len(resident) * self.table.row_bytes
        self._note("copy rows in memory", time.perf_counter() - started, counts.bytes_read, num_bytes)

    def _pack(self, epoch: int, trace_path: Path, resident: NodeIds, path: Path) -> None:
        started = time.perf_counter()
        trace = self._open_trace(epoch, trace_path)
        is_resident = np.zeros(self.table.num_rows, np.bool_)
        is_resident[resident] = True
        packer = Packer(
            self.table,
            hold_listed(resident, self.table.num_rows),
            self.tools.engine,
            self.tools.pool,
            self.plan.share.partition_bytes,
            self.plan.threads,
        )
        segment = self._choose_segment(trace, is_resident, resident)
        shared = SharedRows(trace, is_resident, segment, self.table, packer.partition_rows)
        chunks = lay_out_chunks(shared, trace, self.table.row_bytes, len(resident))
        settings = {**settings_of(self.settings[epoch], hash_held(resident)), "segment": segment}
        end = encode_end(chunks, shared.num_rows, settings)
        num_bytes = chunks[-1].end + len(end)
        self._note(f"lay out epoch {epoch}", time.perf_counter() - started, 0, 0)
        self.log(describe_epoch(epoch, chunks, shared, segment, num_bytes, self.table))
        require_free_space(path.parent, num_bytes)
        total, done = len(chunks) * (1 + packer.num_partitions), 0

        def keep_on() -> None:
            nonlocal done
            done = min(done + 1, total)
            self.progress(f"packing epoch {epoch}", done, total)

        counts = packer.pack(trace, chunks, path, self.scratch, keep_on, shared, trace.record, end)
        self.progress(f"packing epoch {epoch}", total, total)
        self._note(f"pack epoch {epoch}", counts.seconds, counts.bytes_read, counts.bytes_written)

    def _choose_segment(self, trace: TraceReader, is_resident: NDArray[np.bool_], resident: NodeIds) -> int:
        """Choose how many batches share rows, so that an epoch fits its part of the disk."""
        row_bytes = self.table.row_bytes
        headers = [trace.header(index) for index in range(len(trace))]
        # Besides rows: heads, each batch's last block and shared list, the file's end, and the trace during packing.
        num_nodes = sum(header.num_rows for header in headers)
        record_bytes = sum(header.num_bytes for header in headers)
        other_bytes = 2 * record_bytes + 8 * num_nodes + 4 * BLOCK_BYTES * (len(headers) + 1)
        bytes_per_epoch = (self.disk_bytes - len(resident) * row_bytes) // len(self.samples.epochs)
        most_rows = max(0, bytes_per_epoch - other_bytes) // row_bytes
        try:
            return choose_segment_size(trace, is_resident, most_rows).num_batches
        except DiskBudgetError as error:
            smallest = (error.smallest_rows * row_bytes + other_bytes) * len(self.samples.epochs)
            smallest += len(resident) * row_bytes
            raise ConfigError(
                f"--disk {format_bytes(self.disk_bytes)} is too small for {len(self.samples.epochs)} packed epochs; "
                f"use --disk {-(-smallest // 1_000_000)}MB or more, a larger --cache or fewer --epochs"
            ) from None

    def write_manifest(self, resident: NodeIds) -> None:
        """Write the manifest, once all epochs are packed."""
        folder, epochs = self.folder, []
        for epoch in self.samples.epochs:
            path = folder / epoch_file(epoch)
            settings = self.settings[epoch]
            source = open_pack_file(path, settings_of(settings, hash_held(resident)))
            epochs.append(
                PackedEpoch(
                    epoch=epoch,
                    seeds_hash=settings.seeds_hash,
                    num_batches=len(source.chunks),
                    segment=int(str(source.settings["segment"])),
                    most_own_rows=max(own_rows(self.table, each.num_packed, each.num_shared) for each in source.chunks),
                    num_bytes=path.stat().st_size,
                    bytes_needed=sum(each.num_own * each.row_bytes + each.record_bytes for each in source.chunks),
                    shared_checksum=checksum_of(path, source.num_shared * self.table.row_bytes),
                )
            )
            source.close()
        layout = Layout(
            path=folder,
            samples=samples_of(self.settings[self.samples.epochs[0]]),
            row_bytes=self.table.row_bytes,
            num_held=len(resident),
            held_hash=hash_held(resident),
            held_checksum=checksum_of(folder / HELD_FILE),
            epochs=tuple(epochs),
        )
        write_file(folder / STEPS_FILE, (json.dumps(self.steps, indent=1) + "\n").encode(), self.tools.injector)
        write_file(folder / LAYOUT_FILE, encode_layout(layout), self.tools.injector)


def lay_out_chunks(shared: SharedRows, trace: TraceReader, row_bytes: int, num_resident: int) -> list[Chunk]:
    """Place each batch's chunk in the file, after the shared rows."""
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
                slot_bytes=slot_bytes_for(num_resident + num_packed + num_shared),
                record_bytes=header.num_bytes,
            )
        )
    return chunks


def describe_epoch(
    epoch: int, chunks: Sequence[Chunk], shared: SharedRows, segment: int, num_bytes: int, table: Table
) -> str:
    """Describe the disk space and the reads of an epoch in one line, before it is packed."""
    needed_bytes = sum(each.num_own * each.row_bytes + each.record_bytes for each in chunks)
    packed_bytes = sum(each.head_bytes + aligned(each.rows_bytes) for each in chunks)
    times = num_bytes / max(1, table.num_rows * table.row_bytes)
    text = f"Epoch {epoch}: {len(chunks)} batches, {format_bytes(num_bytes)} on disk ({times:.2f}x the feature table); "
    if shared.num_rows == 0:
        ratio = packed_bytes / max(needed_bytes, 1)
        return text + f"reads {format_bytes(packed_bytes)} ({ratio:.3f}x the bytes needed)"
    shared_bytes = sum(each.num_shared * each.row_bytes for each in chunks)
    return text + (
        f"reads {format_bytes(packed_bytes + shared_bytes)} and gaps between shared rows "
        f"({format_bytes(shared.num_rows * table.row_bytes)} shared in segments of {segment} batches)"
    )


def _in_order(sample: Callable[[int], SampledBatch], num_batches: int, threads: int) -> Iterator[SampledBatch]:
    """Yield batches 0, 1, 2 ..., sampled by several threads."""
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
