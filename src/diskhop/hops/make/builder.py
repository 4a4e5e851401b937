"""Building hop tables: finds the tables that are still needed, then runs passes, block after block.

If all rows are kept, tables are written in their final folder. Otherwise they are *whole tables* next to it; the rows
to keep are extracted from them, and they are removed as soon as no later hop needs them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.hops.make.cold_edges import make_values_file
from diskhop.hops.make.hop_job import HopJob, NotFiniteError
from diskhop.hops.make.lists import ListMaker
from diskhop.hops.make.passes import ColdEdges, Lists
from diskhop.hops.make.plan import PropagationPlan
from diskhop.hops.make.task import Task
from diskhop.hops.make.tiles import BadRowsError, TileCutter, extract_rows, format_ids
from diskhop.hops.make.work_tables import Part, WorkTables
from diskhop.hops.operators import FEATURES, Hop
from diskhop.hops.tables import ROWS_FILE, TILE_COLUMNS, TableShape
from diskhop.io.values import read_values
from diskhop.protocols import NodeRows
from diskhop.runtime.blocks import row_ranges
from diskhop.runtime.progress import Progress
from diskhop.runtime.tasks import TaskTools, run_job, run_tasks

# Features are tiled in ranges; a crash costs at most one range.
_RANGE_BYTES = 256 << 20
_PROPAGATING = "propagating"


@dataclass(slots=True, eq=False)
class HopTableBuilder:
    """Builds the tables of one task.

    dataset: the dataset.
    task: tables to build.
    plan: how to build them.
    lists: neighbour lists, by whether they contain loops.
    maker: creates scales and cold edges.
    kept: final folder of the kept tables.
    whole: tables of all rows; in `kept` if all rows are kept.
    rows: rows to keep; None for all.
    budget: memory to reserve from.
    tools: engine and fault injector.
    threads: maximum number of threads.
    progress: receives progress.
    steps: name, seconds and bytes of each finished step, as in result.json.
    """

    dataset: Dataset
    task: Task
    plan: PropagationPlan
    lists: dict[bool, Lists]
    maker: ListMaker
    kept: Path
    whole: WorkTables[TableShape]
    rows: NodeRows | None
    budget: Budget
    tools: TaskTools
    threads: int
    progress: Progress
    steps: list[dict[str, Any]] = field(default_factory=list)
    _block_memory: NDArray[np.float32] | None = None  # reused by the next hop, unless rows are extracted in between
    _num_sources: dict[Lists, int] = field(default_factory=dict)  # highest source + 1 of lists that a pass has read
    _cold: ColdEdges | None = None  # the same for all hops; None without cold edges

    def build(self) -> None:
        """Build all kept tables that are missing."""
        if self.task.sources is not None:  # there is only one kind of lists then
            self._num_sources = dict.fromkeys(self.lists.values(), self.task.sources.num_sources)
        hops = [hop for operator in self.task.operators for hop in operator.hops(self.task.hops)]
        wanted = self._wanted(hops)
        if FEATURES in wanted:
            self._cut()
        self._extract(FEATURES)
        self._drop_unneeded([], hops)
        for number, hop in enumerate(hops):
            outputs = [step.output for step in hop.steps if step.output in wanted]
            if outputs:
                self._propagate(hop, outputs, number, len(hops))
            for step in hop.steps:
                if not step.is_power:
                    self._extract(step.output)
            self._drop_unneeded(hops[: number + 1], hops[number + 1 :])
        self.whole.settle()

    def _is_kept(self, table: str) -> bool:
        """Return whether a kept table is finished."""
        return self.whole.is_complete(table) if self.rows is None else (self.kept / f"{table}.bin").exists()

    def _wanted(self, hops: list[Hop]) -> set[str]:
        """Return the whole tables that are needed for missing ones, from the last hop back to the first."""
        wanted = set() if self._is_kept(FEATURES) else {FEATURES}
        for hop in reversed(hops):
            for step in hop.steps:
                if (not step.is_power and not self._is_kept(step.output)) or step.output in wanted:
                    wanted.add(step.output)
                    if not self.whole.is_complete(step.output):
                        wanted |= {hop.source, step.addend} - {""}
        return wanted

    def _drop_unneeded(self, made: list[Hop], left: list[Hop]) -> None:
        """Remove whole tables that are not kept and that no later hop needs."""
        needed = {name for hop in left for step in hop.steps for name in (hop.source, step.addend)}
        unneeded = {step.output for hop in made for step in hop.steps if step.is_power or self.rows is not None}
        if self.rows is not None:
            unneeded.add(FEATURES)
        for table in sorted(unneeded - needed):
            self.whole.drop(table)

    def _cut(self) -> None:
        shape, started = self.whole.shape, time.perf_counter()
        groups = max(1, _RANGE_BYTES // (shape.num_tiles * shape.tile_bytes))
        with self.budget.reserve("tiling features", self.plan.cut_slots.num_bytes):
            cutter = TileCutter(
                self.task.table, self.task.feature_dtype, shape, self.plan.cut_slots, self.tools.engine, self.threads
            )
            num_bytes = 0
            for first, end in row_ranges(shape.num_groups, groups):
                part = Part(0, shape.num_tiles, first, end)
                if not self.whole.is_done(FEATURES, part):
                    self._cut_range(cutter, part)
                    num_bytes += (end - first) * shape.num_tiles * shape.tile_bytes
                self.progress("tiling features", end, shape.num_groups)
        if num_bytes:
            self._note("cut features", started, num_bytes, num_bytes)

    def _find_cold(self, lists: Lists) -> None:
        """Find the cold edges of the planned blocks, and allocate space for the values of a block computed here."""
        if self.plan.cold is None or self._cold is not None:
            return
        started = time.perf_counter()
        self._cold = self.maker.cold_edges(lists, self.plan.cold.first_row)
        if self.tools.processes == 1:
            self._make_values_file(self._cold)
        num_written = self._cold.sources_path.stat().st_size
        self._note("find cold edges", started, lists.num_edges * lists.index_bytes, num_written)

    def _make_values_file(self, cold: ColdEdges) -> None:
        make_values_file(cold.values_path, 4 * self.plan.columns * cold.num_edges, self.tools)

    def _propagate(self, hop: Hop, outputs: list[str], num_before: int, num_hops: int) -> None:
        """Write the missing columns of the tables of a hop, block after block."""
        shape, operator, started = self.whole.shape, hop.operator.info, time.perf_counter()
        lists = self.lists[operator.self_weight == 0]
        scale = self.maker.scale(operator.scaling, lists)
        missing = {output: set(self.whole.missing_columns(output)) for output in outputs}
        tiles = sorted(set().union(*missing.values()))
        wanted = {tile: frozenset(output for output in outputs if tile in missing[output]) for tile in tiles}
        if tiles:
            self._find_cold(lists)
        blocks, sharing = list(_blocks(wanted, self.plan)), self.tools.processes_per_machine
        with ExitStack() as stack:
            for name, num_bytes in self.plan.reserved.items():
                stack.enter_context(self.budget.reserve(name, sharing * num_bytes))
            job = HopJob(
                hop=hop,
                blocks=blocks,
                outputs=wanted,
                folder=self.whole.folder,
                done=self.whole.done,
                shape=shape,
                lists=lists,
                scale=scale,
                # Lists with weights have the node itself as a neighbour.
                self_weight=0 if self.task.weight_bytes else operator.self_weight,
                columns=self.plan.columns,
                block_bytes=self.plan.block_bytes,
                staging_bytes=self.plan.reserved["staging"],
                threads=max(1, self.threads // sharing),
                num_sources=self._num_sources.get(lists, shape.num_rows),
                cold=self._cold,
                engine=self.tools.engine,
                memory=self._block_memory,  # None where other processes compute
            )

            def report(num_done: int, _num_blocks: int) -> None:
                end = blocks[num_done - 1][1] if num_done else 0
                self.progress(_PROPAGATING, num_before * shape.num_tiles + end, num_hops * shape.num_tiles)

            try:
                self._run_blocks(job, report)
            except NotFiniteError as error:
                raise self.not_finite(hop, NodeRows(error.args[0])) from error
            if self.tools.processes == 1:
                self._block_memory, self._num_sources[lists] = job.memory, job.num_sources
        if tiles:
            moved = [self._moved_bytes(job, number) for number in range(len(blocks))]
            self._note(f"{hop.operator.name} hop {hop.number}", started, *map(sum, zip(*moved, strict=True)))

    def _run_blocks(self, job: HopJob, report: Callable[[int, int], None]) -> None:
        """Write the blocks of a hop: one after the other here, or in other processes."""
        if self.tools.processes > 1 and job.num_parts > 1:
            for table in set().union(*job.outputs.values()):
                self.whole.begin(table, None)
            run_job(job, self.whole.done, self.tools, threads=self.tools.processes, here=1, progress=report)
            return
        if self.tools.processes > 1 and job.cold is not None:
            self._make_values_file(job.cold)
        for number in range(job.num_parts):
            job.write(number, self.whole)
            report(number + 1, job.num_parts)

    def _moved_bytes(self, job: HopJob, number: int) -> tuple[int, int]:
        """Return the bytes that a block reads and writes."""
        (first, end), shape, lists, cold = job.blocks[number], job.shape, job.lists, job.cold_edges(number)
        block_bytes = (end - first) * shape.num_groups * shape.tile_bytes
        cold_bytes = 0 if cold is None else 4 * job.columns * cold.num_edges
        num_read = block_bytes + (0 if cold is None else lists.index_bytes * cold.num_edges)
        num_written = cold_bytes
        for step in job.steps(number):
            lists_bytes = lists.num_edges * lists.edge_bytes + 8 * lists.num_nodes
            num_read += lists_bytes + block_bytes * bool(step.addend) + cold_bytes
            num_written += block_bytes
        return num_read, num_written

    def _extract(self, table: str) -> None:
        """Extract the rows to keep from a whole table, unless all rows are kept or it is done."""
        if self.rows is None or self._is_kept(table):
            return
        started = time.perf_counter()
        self._block_memory = None
        with self.budget.reserve("extracting rows", self.plan.extraction_slots.num_bytes):
            step = _Extraction(f"{table}.bin", self, table, NodeRows(read_values(self.kept / ROWS_FILE, "<i8")))
            run_tasks([step], self.kept, self.tools, threads=1)
        num_written = (self.kept / step.name).stat().st_size
        self._note(f"extract {table}", started, self.whole.shape.num_bytes, num_written)

    def _note(self, step: str, started: float, bytes_read: int, bytes_written: int) -> None:
        seconds = time.perf_counter() - started
        self.steps.append({"step": step, "seconds": seconds, "bytes_read": bytes_read, "bytes_written": bytes_written})

    def _cut_range(self, cutter: TileCutter, part: Part) -> None:
        make = partial(cutter.write_tiles, first_group=part.first_group, end_group=part.end_group)
        try:
            self.whole.write(FEATURES, part, make)
        except BadRowsError as error:
            nodes = format_ids(self.dataset.id_map().ids(NodeRows(error.rows)))
            raise ConfigError(
                f"{self.dataset.path}: nodes {nodes} have {error.what}; "
                f"{error.remedy}, then run 'diskhop propagate' again"
            ) from error

    def not_finite(self, hop: Hop, rows: NodeRows) -> ConfigError:
        """Return the error for a hop with values that the dtype cannot represent, for these nodes."""
        nodes = format_ids(self.dataset.id_map().ids(rows))
        return ConfigError(
            f"{self.dataset.path}: {hop.operator.name} exceeds the range of {self.whole.shape.dtype} after hop "
            f"{hop.number}, at nodes {nodes}; use --dtype float32 or bfloat16, or scale the features"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Extraction:
    """The task that extracts the rows to keep from a table."""

    name: str
    builder: HopTableBuilder
    table: str
    rows: NodeRows

    def write(self, path: Path, tools: TaskTools) -> None:
        """Write the extracted table (see Task)."""
        builder = self.builder
        source, slots = builder.whole.path(self.table), builder.plan.extraction_slots
        extract_rows(source, builder.whole.shape, self.rows, path, slots, tools.engine, builder.threads)


def _blocks(wanted: dict[int, frozenset[str]], plan: PropagationPlan) -> Iterator[tuple[int, int]]:
    """Yield (first, end) of the tiles of each block: of the planned width, or narrower ones of all rows."""
    widest = plan.columns // TILE_COLUMNS
    for first, end in _runs(wanted, widest):
        narrower = widest if plan.cold is None else plan.cold.resident_tiles
        step = widest if end - first == widest else narrower
        for start in range(first, end, step):
            yield start, min(start + step, end)


def _runs(wanted: dict[int, frozenset[str]], most: int) -> Iterator[tuple[int, int]]:
    """Yield (first, end) of runs of at most `most` tiles that have the same wanted outputs."""
    first = end = -1
    for tile, outputs in wanted.items():
        if tile != end or end - first == most or outputs != wanted[first]:
            if end > first:
                yield first, end
            first = tile
        end = tile + 1
    if end > first:
        yield first, end
