"""How hop tables are made within a budget: a pure function from counts to columns, passes, bytes and seconds.

A *pass* is one step for one block of columns: the block is loaded, lists stream by, the next hop's columns stream out.
The wider the block, the fewer times lists are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from diskhop.budget import Budget, format_bytes
from diskhop.dataset.sort_plan import SortLimits, bytes_in_memory, smallest_sort_bytes
from diskhop.errors import ConfigError
from diskhop.io.device_model import DeviceModel
from diskhop.io.memory import buffer_bytes
from diskhop.propagation.hop_table import PAGE_BYTES, TILE_COLUMNS, TableShape
from diskhop.propagation.operators import Operator
from diskhop.propagation.passes import aligned_bytes, least_staging_bytes
from diskhop.propagation.tiles import Slots, plan_cut_slots, plan_extraction_slots, row_major
from diskhop.protocols import Table

# A pass is quick with as much as it needs to keep the disk busy.
_HUGE_PAGE_BYTES = 2 << 20
_GOOD_STAGING_BYTES = 8 << 20
MOST_STAGING_BYTES = 16 << 20
# A row of a block is this much for each tile.
_TILE_ROW_BYTES = 4 * TILE_COLUMNS
_LINE_TILES = 4  # that a cache line holds
_KEY_BYTES = 8
# What one core does in a second: edges times columns of a product (12 columns, a block that no cache holds), and values
# converted on their way.
_PRODUCTS_A_SECOND = 0.6e9
_VALUES_A_SECOND = 400e6
_SORTED_EDGES_A_SECOND = 15e6
_LEAST_SECONDS = 0.1
_THREADS_POWER = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is to be made of a dataset. table: its features, of feature_dtype. num_kept: rows written out; None: all.

    sorted_edges: of lists that are sorted first, 0 where the dataset's own serve.
    """

    table: Table
    feature_dtype: str
    shape: TableShape
    num_edges: int
    index_bytes: int
    operators: tuple[Operator, ...]
    hops: int
    sorted_edges: int
    num_kept: int | None

    @property
    def kept_shape(self) -> TableShape:
        """How the tables that are kept lie."""
        return self.shape if self.num_kept is None else row_major(self.shape, self.num_kept)

    @property
    def num_tables(self) -> int:
        """That are kept."""
        return len(self.operators) * self.hops + 1

    @property
    def result_bytes(self) -> int:
        """Of the tables that are kept."""
        return self.num_tables * self.kept_shape.num_bytes + 8 * (self.num_kept or 0)

    @property
    def work_bytes(self) -> int:
        """On the disk at most, the result included."""
        nodes_bytes = 4 * self.shape.num_rows
        lists_bytes = self.sorted_edges * (_KEY_BYTES + self.index_bytes) + (8 * self.shape.num_rows + nodes_bytes)
        powers = max(sum(step.is_power for step in hop.steps) for op in self.operators for hop in op.hops(self.hops))
        # Of powers a source and what is made of it; where rows are extracted it is so with all tables.
        num_work = 2 * powers + (0 if self.num_kept is None else 3)
        return lists_bytes + num_work * self.shape.num_bytes + self.result_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """What a stage moves, and about how long it takes."""

    name: str
    bytes_read: int
    bytes_written: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PropagationPlan:
    """columns: of a block; num_blocks: that the table is cut into; block_bytes: a block's, with what pads its rows.

    reserved: bytes of memory by name, while passes run. work_bytes: on the disk at most. seconds: predicted; disk:
    whether its speed was measured or assumed.
    """

    columns: int
    num_blocks: int
    block_bytes: int
    num_passes: int
    reserved: dict[str, int]
    cut_slots: Slots
    extraction_slots: Slots
    stages: tuple[StagePlan, ...]
    num_tables: int
    result_bytes: int
    work_bytes: int
    seconds: float
    disk: str

    @property
    def bytes_read(self) -> int:
        """By all stages."""
        return sum(stage.bytes_read for stage in self.stages)

    @property
    def bytes_written(self) -> int:
        """By all stages."""
        return sum(stage.bytes_written for stage in self.stages)

    def __str__(self) -> str:
        assumed = " (the disk's speed is assumed)" if self.disk == "assumed" else ""
        return (
            f"{self.num_tables} tables, {format_bytes(self.result_bytes)} on the disk and "
            f"{format_bytes(self.work_bytes)} while it works; {self.columns} columns at a time, {self.num_passes} "
            f"passes that read {format_bytes(self.bytes_read)} and write {format_bytes(self.bytes_written)}; "
            f"about {self.seconds:.1f} s{assumed}"
        )


def sort_limits(memory_bytes: int) -> SortLimits:
    """Sizes for sorting lists: the usual ones, smaller where memory is short."""
    usual = SortLimits()
    return replace(
        usual,
        least_block_bytes=usual.least_block_bytes if memory_bytes >= 64 << 20 else PAGE_BYTES,
        read_edges=max(1024, min(usual.read_edges, memory_bytes >> 8)),
        sorted_keys=usual.sorted_keys if memory_bytes >= 64 << 20 else max(1024, memory_bytes >> 8),
    )


def plan_propagation(task: Task, *, memory_bytes: int, threads: int, device: DeviceModel) -> PropagationPlan:
    """Choose the widest block of columns that memory holds, and add up what follows. Raises BudgetError."""
    tiles, block_bytes, staging_bytes = _choose_tiles(task, memory_bytes, threads)
    reserved = {"column block": aligned_bytes(block_bytes), "staging": staging_bytes}
    cut_slots = plan_cut_slots(task.table, task.feature_dtype, task.shape, memory_bytes)
    extraction_slots = plan_extraction_slots(task.shape, task.num_kept or 0, memory_bytes)
    held = [reserved, {"rows to be cut": cut_slots.num_bytes}]
    if task.num_kept is not None:
        held.append({"rows kept": extraction_slots.num_bytes})
    if task.sorted_edges:
        held.append({"sorting edges": _least_sort_bytes(task.sorted_edges, memory_bytes)})
    for wanted in sorted(held, key=lambda each: sum(each.values()), reverse=True):
        Budget(memory_bytes).require(wanted)
    num_blocks = -(-task.shape.num_tiles // tiles)
    stages = _plan_stages(task, num_blocks, threads, device)
    num_steps = sum(len(hop.steps) for operator in task.operators for hop in operator.hops(task.hops))
    return PropagationPlan(
        columns=TILE_COLUMNS * tiles,
        num_blocks=num_blocks,
        block_bytes=block_bytes,
        num_passes=num_steps * num_blocks,
        reserved=reserved,
        cut_slots=cut_slots,
        extraction_slots=extraction_slots,
        stages=stages,
        num_tables=task.num_tables,
        result_bytes=task.result_bytes,
        work_bytes=task.work_bytes,
        seconds=_LEAST_SECONDS + sum(stage.seconds for stage in stages),
        disk=device.source,
    )


def require_disk(task: Task, num_bytes: int, what: str, remedies: Sequence[tuple[str, Task]]) -> None:
    """Refuse a disk that is too small, with what would do. remedies: options by which a task takes less.

    Raises ConfigError. what: the disk's bytes are, for the message.
    """
    if task.work_bytes <= num_bytes:
        return
    less = "".join(f"; {name} takes {format_bytes(other.work_bytes)}" for name, other in remedies)
    raise ConfigError(
        f"{len(task.operators)} x {task.hops} hops and the features are {task.num_tables} tables of "
        f"{format_bytes(task.kept_shape.num_bytes)}, which take {format_bytes(task.work_bytes)} on the disk while they "
        f"are made, and {what} {format_bytes(num_bytes)}{less}"
    )


def _choose_tiles(task: Task, memory_bytes: int, threads: int) -> tuple[int, int, int]:
    """Tiles of a block, its bytes, and beside it those of staging."""
    shape = task.shape
    good_bytes = min(memory_bytes // 32, _GOOD_STAGING_BYTES)

    def least_bytes(tiles: int) -> int:
        return buffer_bytes(least_staging_bytes(TILE_COLUMNS * tiles, shape.item_bytes, task.index_bytes, threads))

    def block_bytes(tiles: int) -> int:
        return shape.num_rows * tiles * _TILE_ROW_BYTES

    def fits(tiles: int) -> bool:
        return aligned_bytes(block_bytes(tiles)) + max(good_bytes, least_bytes(tiles)) <= memory_bytes

    tiles = next((tiles for tiles in range(shape.num_tiles, 1, -1) if fits(tiles)), 1)
    num_bytes = block_bytes(tiles)
    left_bytes = memory_bytes - aligned_bytes(num_bytes)
    staging_bytes = max(least_bytes(tiles), _whole_pages(min(left_bytes, MOST_STAGING_BYTES)))
    if tiles % _LINE_TILES == _LINE_TILES - 1:  # rows that straddle lines: see ColumnBlock
        room = (memory_bytes - staging_bytes) // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
        num_bytes = max(num_bytes, min(room, num_bytes + shape.num_rows * _TILE_ROW_BYTES))
    return tiles, num_bytes, staging_bytes


def _whole_pages(num_bytes: int) -> int:
    """The most that a buffer takes of so many bytes without being rounded up."""
    if num_bytes >= _HUGE_PAGE_BYTES:
        return num_bytes // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
    return min(num_bytes, _HUGE_PAGE_BYTES // 2) // PAGE_BYTES * PAGE_BYTES


def _least_sort_bytes(num_edges: int, memory_bytes: int) -> int:
    limits = sort_limits(memory_bytes)
    return min(bytes_in_memory(num_edges, _KEY_BYTES, 1, limits), smallest_sort_bytes(num_edges, _KEY_BYTES, limits))


def _plan_stages(task: Task, num_blocks: int, threads: int, device: DeviceModel) -> tuple[StagePlan, ...]:
    shape, together = task.shape, threads**_THREADS_POWER
    lists_bytes = task.index_bytes * task.num_edges + 8 * (shape.num_rows + 1)

    def stage(name: str, bytes_read: int, bytes_written: int, cpu_seconds: float) -> StagePlan:
        seconds = max(_disk_seconds(device, bytes_read, bytes_written), cpu_seconds)
        return StagePlan(name=name, bytes_read=bytes_read, bytes_written=bytes_written, seconds=seconds)

    stages = []
    if task.sorted_edges:
        spilled_bytes = task.sorted_edges * _KEY_BYTES
        written_bytes = task.sorted_edges * task.index_bytes + 8 * (shape.num_rows + 1)
        seconds = task.sorted_edges / _SORTED_EDGES_A_SECOND / together
        stages.append(stage("sort lists", lists_bytes + spilled_bytes, written_bytes + spilled_bytes, seconds))
    num_values = shape.num_rows * shape.dim
    table_bytes = task.table.num_rows * task.table.row_stride
    stages.append(stage("cut features", table_bytes, shape.num_bytes, num_values / _VALUES_A_SECOND))
    for operator in task.operators:
        for hop in operator.hops(task.hops):
            name = f"{operator.name} hop {hop.number}"
            # The source and its scales, and for each step lists and scales, and a table that is added.
            scales_bytes = 4 * shape.num_rows * num_blocks
            read_bytes = shape.num_bytes + scales_bytes * operator.info.is_symmetric
            seconds = _disk_seconds(device, read_bytes, 0)
            written_bytes = 0
            for step in hop.steps:
                moved_bytes = lists_bytes * num_blocks + scales_bytes + shape.num_bytes * bool(step.addend)
                products = task.num_edges * shape.num_tiles * TILE_COLUMNS
                seconds += max(
                    _disk_seconds(device, moved_bytes, shape.num_bytes), products / _PRODUCTS_A_SECOND / together
                )
                read_bytes += moved_bytes
                written_bytes += shape.num_bytes
            stages.append(StagePlan(name=name, bytes_read=read_bytes, bytes_written=written_bytes, seconds=seconds))
    if task.num_kept is not None:
        kept_bytes = task.num_tables * task.kept_shape.num_bytes
        # Of parts without a row nothing is read; with rows anywhere there are few.
        stages.append(stage("extract rows", task.num_tables * shape.num_bytes, kept_bytes, 0))
    return tuple(stages)


def _disk_seconds(device: DeviceModel, bytes_read: int, bytes_written: int) -> float:
    read_seconds = bytes_read / device.sequential_read_bytes_per_second
    return read_seconds + bytes_written / device.sequential_write_bytes_per_second
