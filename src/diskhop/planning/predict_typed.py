"""Planning of predictions over a graph with types, whose relations are summed in passes: a pure function.

The work is a sequence of steps. A *sums step* holds some columns of one node type's rows in memory, a *block*, and
streams the neighbour lists of every relation from that type past them; the means of each relation are written. A *rows
step* makes a table of one node type, row by row: of features, or of means and the type's own rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from diskhop.budget import Budget, format_bytes
from diskhop.disk.model import DiskModel
from diskhop.hops.make.passes import PIECE_EDGES, aligned_bytes
from diskhop.hops.stream.features import reading_features_bytes
from diskhop.hops.stream.parts import band_bytes
from diskhop.hops.tables import TILE_COLUMNS, TILE_ROWS
from diskhop.planning.passes_plan import PassesPlan, with_costs
from diskhop.planning.predict_choice import doubled, stretches_that_fit
from diskhop.planning.predict_costs import StepCost, pass_seconds, sums_seconds, table_seconds
from diskhop.planning.predict_sizes import (
    GraphCounts,
    Sizes,
    product_rows,
    reading_outputs_bytes,
    table_bytes,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsStep:
    """Sums of columns of one node type's rows.

    name: name of the step.
    num_sources: rows that are summed.
    num_tiles: tiles of their columns.
    relations: edges, lists and index bytes of each relation.
    """

    name: str
    num_sources: int
    num_tiles: int
    relations: tuple[GraphCounts, ...]

    def memory(self, tiles: int, sizes: Sizes) -> dict[str, int]:
        """Return the memory of a block of some tiles, by name."""
        longest = max(self.relations, key=lambda each: each.num_edges)
        return {
            "column block": aligned_bytes(band_bytes(self.num_sources + 1, TILE_COLUMNS * tiles)),
            "neighbour lists": sizes.workers * sizes.listing_bytes(longest.index_bytes, longest.num_edges),
            "rows in flight": sizes.workers * sizes.moving_bytes(tiles),
        }

    def most_tiles(self, sizes: Sizes, memory_bytes: int) -> int:
        """Return the widest block that fits, in tiles; 0 if none does."""
        fitting = (n for n in range(self.num_tiles, 0, -1) if sum(self.memory(n, sizes).values()) <= memory_bytes)
        return next(fitting, 0)

    def cost(self, num_blocks: int, sizes: Sizes, threads: int) -> StepCost:
        """Return the cost of all blocks."""
        filled = table_bytes(self.num_sources, self.num_tiles)
        lists, written, seconds = 0, 0, 0.0
        for each in self.relations:
            lists += num_blocks * each.lists_bytes
            written += each.tile_bytes(self.num_tiles)
            seconds += float(sums_seconds(each, num_blocks, self.num_tiles, sizes.part_rows, sizes, threads))
            seconds += num_blocks * pass_seconds(each, sizes.part_rows, sizes)
        return StepCost(self.name, filled + lists, written, filled, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsStep:
    """A table of one node type.

    name: name of the step.
    num_rows: rows.
    feature_row_bytes: bytes of a feature row on disk; 0 where none is stored.
    feature_dim: values of a feature row, stored or not; 0 where the table is made of others.
    read_tiles: tiles of the tables that are read.
    out_tiles: tiles of the table.
    widest: most values of a row in a product.
    flops: floating-point operations per row.
    """

    name: str
    num_rows: int
    feature_row_bytes: int = 0
    feature_dim: int = 0
    read_tiles: int = 0
    out_tiles: int
    widest: int
    flops: float

    def memory(self, sizes: Sizes) -> dict[str, int]:
        """Return the memory of the step, by name."""
        moved = sizes.moving_bytes(self.read_tiles) + sizes.moving_bytes(self.out_tiles)
        if self.feature_dim:
            moved += reading_features_bytes(self.feature_row_bytes, self.feature_dim, sizes.part_rows)
        return {
            "rows in flight": sizes.workers * moved,
            "products": sizes.workers * sizes.computing_bytes(self.widest),
        }

    def cost(self, sizes: Sizes, threads: int) -> StepCost:
        """Return the cost of the step."""
        rows = GraphCounts(
            num_nodes=self.num_rows,
            num_edges=0,
            index_bytes=0,
            num_sources=0,
            feature_row_bytes=self.feature_row_bytes,
            feature_dim=self.feature_dim,
        )
        seconds = table_seconds(self.flops, rows, sizes, threads)
        read = self.num_rows * self.feature_row_bytes + rows.tile_bytes(self.read_tiles)
        return StepCost(self.name, read, rows.tile_bytes(self.out_tiles), 0, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedWork:
    """Tables to make.

    steps: in order.
    wanted_tiles: tiles of the outputs that are read at the end.
    work_bytes: largest disk space of the tables.
    result_bytes: disk space of the tables that stay.
    """

    steps: tuple[SumsStep | RowsStep, ...]
    wanted_tiles: int
    work_bytes: int
    result_bytes: int

    @property
    def sums(self) -> list[SumsStep]:
        """Steps that sum."""
        return [step for step in self.steps if isinstance(step, SumsStep)]

    @property
    def rows(self) -> list[RowsStep]:
        """Steps that make tables of rows."""
        return [step for step in self.steps if isinstance(step, RowsStep)]

    @property
    def product_rows(self) -> int:
        """Rows per product."""
        return product_rows(max(step.widest for step in self.rows), max(step.num_rows for step in self.rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedPassesPlan(PassesPlan):
    """How a model over relations predicts for all nodes.

    blocks: tiles of each block of every sums step, in order.
    """

    blocks: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        passes = sum(map(len, self.blocks))
        return (
            f"{passes} passes over neighbour lists of relations, reading {format_bytes(self.bytes_read)} and writing "
            f"{format_bytes(self.bytes_written)}, up to {format_bytes(self.work_bytes)} on disk during the work; about "
            f"{self.seconds:.1f} s"
        )


@dataclass(frozen=True, slots=True)
class _Choice:
    """Sizes that fit, the blocks of every sums step, and the costs of all steps."""

    sizes: Sizes
    blocks: tuple[tuple[int, ...], ...]
    costs: tuple[StepCost, ...]

    def seconds(self, disk: DiskModel) -> float:
        return sum(float(np.sum(cost.seconds(disk))) for cost in self.costs)


def plan_typed_passes(
    work: TypedWork,
    *,
    memory_bytes: int,
    threads: int,
    engine: str,
    disk: DiskModel,
    later: Mapping[str, int] = MappingProxyType({}),
    blocks: Sequence[Sequence[int]] = (),
    processes: int = 1,
) -> TypedPassesPlan:
    """Choose the fastest sizes that fit into memory, and predict the work. Raises BudgetError.

    memory_bytes, threads: of each process.
    later: memory by name of what reads the outputs, in bytes. blocks: tiles of each sums step's blocks, to be kept.
    processes: processes that share the rows of every table.
    """
    rows = work.product_rows
    fitting = [
        choice
        for sizes in _sizes(work, memory_bytes, threads)
        if (choice := _choice(work, sizes, memory_bytes - sum(later.values()), memory_bytes, threads, blocks))
    ]
    if fitting:
        chosen = min(fitting, key=lambda each: each.seconds(disk))
    else:
        narrowest = tuple(tuple(each) for each in blocks) or tuple((1,) * step.num_tiles for step in work.sums)
        chosen = _Choice(Sizes(rows, rows, PIECE_EDGES, 1, rows), narrowest, ())
    sizes = chosen.sizes
    phases: list[dict[str, int]] = [step.memory(sizes) for step in work.rows]
    phases += [step.memory(max(each), sizes) for step, each in zip(work.sums, chosen.blocks, strict=True)]
    reserved = max(phases, key=lambda phase: sum(phase.values()))
    reading = {"reading outputs": reading_outputs_bytes(work.wanted_tiles, sizes.part_rows, threads), **later}
    Budget(memory_bytes).require(max(reserved, reading, key=lambda phase: sum(phase.values())))
    kept = [max(phase.get(name, 0) for phase in phases) for name in ("column block", "products")]
    plan = TypedPassesPlan(
        engine=engine,
        threads=threads,
        memory_bytes=memory_bytes,
        reserved=reserved,
        reasons=tuple(_reason(step, each) for step, each in zip(work.sums, chosen.blocks, strict=True)),
        blocks=chosen.blocks,
        part_rows=sizes.part_rows,
        summed_rows=sizes.summed_rows,
        workers=sizes.workers,
        product_rows=sizes.product_rows,
        stretch_edges=sizes.stretch_edges,
        pool_bytes=max(0, sum(reserved.values()) - sum(kept)),
        work_bytes=work.work_bytes,
        result_bytes=work.result_bytes,
    )
    return with_costs(plan, [cost.shared_by(processes) for cost in chosen.costs], disk)


def _sizes(work: TypedWork, memory_bytes: int, threads: int) -> Iterator[Sizes]:
    """Yield sizes to try, the largest first."""
    relations = [each for step in work.sums for each in step.relations]
    num_edges = max((each.num_edges for each in relations), default=1)
    index_bytes = max((each.index_bytes for each in relations), default=1)
    rows = work.product_rows
    for edges in stretches_that_fit(num_edges, index_bytes, memory_bytes):
        for part_rows in doubled(rows, TILE_ROWS, TILE_ROWS):
            for workers in range(threads, 0, -1):
                if threads % workers == 0:
                    yield Sizes(part_rows, rows, edges, workers, part_rows)


def _choice(
    work: TypedWork,
    sizes: Sizes,
    outputs_bytes: int,
    memory_bytes: int,
    threads: int,
    kept: Sequence[Sequence[int]],
) -> _Choice | None:
    """Return the widest blocks for some sizes, with their costs; None if something does not fit.

    outputs_bytes: memory of the readers of the outputs.
    """
    if reading_outputs_bytes(work.wanted_tiles, sizes.part_rows, threads) > outputs_bytes:
        return None
    if any(sum(step.memory(sizes).values()) > memory_bytes for step in work.rows):
        return None
    blocks = []
    for number, step in enumerate(work.sums):
        most = step.most_tiles(sizes, memory_bytes)
        each = tuple(kept[number]) if kept else _divided(step.num_tiles, most)
        if most == 0 or max(each) > most:
            return None
        blocks.append(each)
    counts = iter(map(len, blocks))
    costs = tuple(
        step.cost(next(counts), sizes, threads) if isinstance(step, SumsStep) else step.cost(sizes, threads)
        for step in work.steps
    )
    return _Choice(sizes, tuple(blocks), costs)


def _divided(num_tiles: int, most: int) -> tuple[int, ...]:
    """Divide tiles into as few blocks of at most some tiles as possible, all about as wide."""
    if most == 0:
        return ()
    num_blocks = -(-num_tiles // most)
    each, more = divmod(num_tiles, num_blocks)
    return tuple(each + (number < more) for number in range(num_blocks))


def _reason(step: SumsStep, blocks: Sequence[int]) -> str:
    columns = TILE_COLUMNS * step.num_tiles
    if len(blocks) == 1:
        return f"{step.name.capitalize()}: all {columns} columns in memory"
    return f"{step.name.capitalize()}: {len(blocks)} passes of up to {TILE_COLUMNS * max(blocks)} of {columns} columns"
