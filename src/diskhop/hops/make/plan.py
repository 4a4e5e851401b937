"""Planning of hop tables: a pure function from counts and a budget to columns, passes, bytes and seconds.

A *pass* is one step for one block of columns: the block is loaded, lists are streamed past it, and the columns of the
next hop are streamed out. The wider the block, the fewer times the lists are read. *Cold* edges, from rows that are not
in the block, make it wider.
"""

from __future__ import annotations

from dataclasses import dataclass

from diskhop.budget import Budget, format_bytes
from diskhop.dataset.sort.plan import bytes_in_memory, limits_within, smallest_sort_bytes
from diskhop.disk.model import DiskModel
from diskhop.hops.make.blocks import TILE_ROW_BYTES, Block, ColdRows, choose_block, cold_disk_bytes, num_blocks_of
from diskhop.hops.make.cold_edges import cold_file_bytes, counts_bytes
from diskhop.hops.make.passes import aligned_bytes
from diskhop.hops.make.task import KEY_BYTES, Task
from diskhop.hops.make.tiles import Slots, plan_cut_slots, plan_extraction_slots
from diskhop.hops.make.weighted_lists import WEIGHTED_LISTS_BYTES
from diskhop.hops.tables import TILE_COLUMNS
from diskhop.plans import PlannedSteps, StepPlan

# Throughput of one core: edges times columns of a product (12 columns, a block larger than the caches), and converted
# values.
_PRODUCTS_PER_SECOND = 0.6e9
_VALUES_PER_SECOND = 400e6
_SORTED_EDGES_PER_SECOND = 15e6
_WRITTEN_EDGES_PER_SECOND = 10e6
_LEAST_SECONDS = 0.1
_THREADS_POWER = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class PropagationPlan(PlannedSteps):
    """How hop tables are built.

    columns: columns per block.
    num_blocks: blocks per table.
    block_bytes: bytes per block, including padding.
    cold: rows that are not in a block; None if all needed rows are.
    num_passes: number of passes.
    reserved: memory of a pass by name, in bytes.
    cut_slots: buffers for tiling the features.
    extraction_slots: buffers for extracting the rows to keep.
    steps: the work, in order.
    num_tables: number of kept tables.
    result_bytes: disk space of the kept tables.
    work_bytes: largest disk space during the work, including the result.
    disk_source: whether the speed of the disk was measured or assumed.
    """

    columns: int
    num_blocks: int
    block_bytes: int
    cold: ColdRows | None
    num_passes: int
    reserved: dict[str, int]
    cut_slots: Slots
    extraction_slots: Slots
    steps: tuple[StepPlan, ...]
    num_tables: int
    result_bytes: int
    work_bytes: int
    disk_source: str

    @property
    def seconds(self) -> float:
        """Predicted time, with that of starting."""
        return _LEAST_SECONDS + sum(step.seconds for step in self.steps)

    def __str__(self) -> str:
        assumed = " (assumed disk speed)" if self.disk_source == "assumed" else ""
        cold = "" if self.cold is None else f" (rows before {self.cold.first_row:,} in memory)"
        return (
            f"{self.num_tables} tables: {format_bytes(self.result_bytes)} on disk, up to "
            f"{format_bytes(self.work_bytes)} during the work; "
            f"{self.num_passes} passes of {self.columns} columns{cold}, "
            f"reading {format_bytes(self.bytes_read)} and writing {format_bytes(self.bytes_written)}; "
            f"about {self.seconds:.1f} s{assumed}"
        )


def plan_propagation(
    task: Task, *, memory_bytes: int, threads: int, disk: DiskModel, processes: int = 1
) -> PropagationPlan:
    """Choose the widest block of columns that fits into memory and predict the work. Raises BudgetError.

    memory_bytes, threads: of each of the processes that compute blocks.
    """

    def moved_bytes(block: Block) -> int:
        return sum(step.bytes_read + step.bytes_written for step in _plan_steps(task, block, threads, disk))

    block = choose_block(task, memory_bytes, threads, moved_bytes)
    reserved = {"column block": aligned_bytes(block.num_bytes), "staging": block.staging_bytes}
    if block.cold is not None:
        reserved["cold edges"] = counts_bytes(task.num_edges)
    cut_slots = plan_cut_slots(task.table, task.feature_dtype, task.shape, memory_bytes)
    extraction_slots = plan_extraction_slots(task.shape, task.num_kept or 0, memory_bytes)
    phases = [reserved, {"tiling features": cut_slots.num_bytes}]
    if task.num_kept is not None:
        phases.append({"extracting rows": extraction_slots.num_bytes})
    if task.looped_bytes:
        phases.append({"writing lists": WEIGHTED_LISTS_BYTES})
    if task.sorted_edges:
        phases.append({"sorting edges": _least_sort_bytes(task.sorted_edges, memory_bytes)})
    for wanted in sorted(phases, key=lambda each: sum(each.values()), reverse=True):
        Budget(memory_bytes).require(wanted)
    num_blocks = num_blocks_of(task, block)
    steps = _plan_steps(task, block, threads, disk)
    num_steps = sum(len(hop.steps) for operator in task.operators for hop in operator.hops(task.hops))
    return PropagationPlan(
        columns=TILE_COLUMNS * block.tiles,
        num_blocks=num_blocks,
        block_bytes=block.num_bytes,
        cold=block.cold,
        num_passes=num_steps * num_blocks,
        reserved=reserved,
        cut_slots=cut_slots,
        extraction_slots=extraction_slots,
        steps=steps,
        num_tables=task.num_tables,
        result_bytes=task.result_bytes,
        work_bytes=task.work_bytes + cold_disk_bytes(task, block, min(processes, num_blocks)),
        disk_source=disk.source,
    )


def _least_sort_bytes(num_edges: int, memory_bytes: int) -> int:
    limits = limits_within(memory_bytes)
    return min(bytes_in_memory(num_edges, KEY_BYTES, 1, limits), smallest_sort_bytes(num_edges, KEY_BYTES, limits))


def _plan_steps(task: Task, block: Block, threads: int, disk: DiskModel) -> tuple[StepPlan, ...]:
    shape, together, num_blocks = task.shape, threads**_THREADS_POWER, num_blocks_of(task, block)
    lists_bytes = (task.index_bytes + task.weight_bytes) * task.num_edges + 8 * (shape.num_rows + 1)

    def planned(name: str, bytes_read: int, bytes_written: int, cpu_seconds: float) -> StepPlan:
        seconds = max(disk.sequential_seconds(bytes_read, bytes_written), cpu_seconds)
        return StepPlan(name=name, bytes_read=bytes_read, bytes_written=bytes_written, seconds=seconds)

    steps = []
    if task.sorted_edges:
        spilled_bytes = task.sorted_edges * KEY_BYTES
        written_bytes = task.sorted_edges * task.index_bytes + 8 * (shape.num_rows + 1)
        seconds = task.sorted_edges / _SORTED_EDGES_PER_SECOND / together
        steps.append(planned("sort lists", lists_bytes + spilled_bytes, written_bytes + spilled_bytes, seconds))
    if task.looped_bytes:
        steps.append(planned("write lists", lists_bytes, task.looped_bytes, task.num_edges / _WRITTEN_EDGES_PER_SECOND))
    # Bytes of all values of cold edges, and how often their sources are read.
    cold_bytes = num_cold_blocks = 0
    if block.cold is not None:
        num_cold_blocks = shape.num_tiles // block.tiles
        cold_bytes = num_cold_blocks * block.cold.num_edges * block.tiles * TILE_ROW_BYTES
        found_bytes = cold_file_bytes(task.num_edges, block.cold.num_edges, task.index_bytes)
        steps.append(planned("find cold edges", task.index_bytes * task.num_edges, found_bytes, 0))
    num_values = shape.num_rows * shape.dim
    table_bytes = task.table.num_rows * task.table.row_stride
    steps.append(planned("cut features", table_bytes, shape.num_bytes, num_values / _VALUES_PER_SECOND))
    for operator in task.operators:
        for hop in operator.hops(task.hops):
            name = f"{operator.name} hop {hop.number}"
            # The source and its scales; then for each step the lists, the scales and the addend.
            scales_bytes = 4 * shape.num_rows * num_blocks
            read_bytes = shape.num_bytes + scales_bytes * operator.info.is_symmetric
            if block.cold is not None:
                read_bytes += num_cold_blocks * block.cold.num_edges * task.index_bytes
            seconds = disk.sequential_seconds(read_bytes, cold_bytes)
            written_bytes = cold_bytes
            for step in hop.steps:
                moved_bytes = lists_bytes * num_blocks + scales_bytes + shape.num_bytes * bool(step.addend) + cold_bytes
                products = task.num_edges * shape.num_tiles * TILE_COLUMNS
                seconds += max(
                    disk.sequential_seconds(moved_bytes, shape.num_bytes), products / _PRODUCTS_PER_SECOND / together
                )
                read_bytes += moved_bytes
                written_bytes += shape.num_bytes
            steps.append(StepPlan(name=name, bytes_read=read_bytes, bytes_written=written_bytes, seconds=seconds))
    if task.num_kept is not None:
        kept_bytes = task.num_tables * task.kept_shape.num_bytes
        # Parts without kept rows are not read, but there are few if the rows are spread out.
        steps.append(planned("extract rows", task.num_tables * shape.num_bytes, kept_bytes, 0))
    return tuple(steps)
