"""Planning of prediction layer by layer: a pure function from a model's shape, counts and a budget to blocks and bytes.

A layer *sums* some columns over the neighbours of every node. A *block* is as many of these columns as memory holds, of
all rows that an edge may need (PP-GNN's propagation, for layers with parameters). Sums of the last block go on to the
layer's products at once; those of earlier ones are written, and read again with the rows' own values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from diskhop.budget import Budget, format_bytes
from diskhop.disk.model import DiskModel
from diskhop.hops.stream.lists import stretch_edges
from diskhop.hops.tables import TILE_COLUMNS, TILE_ROWS
from diskhop.planning.predict_sizes import (
    GraphCounts,
    LayerPlan,
    LayerShape,
    Sizes,
    StreamedWork,
    first_rows_memory,
    product_rows,
    products_memory,
    reading_outputs_bytes,
    sums_memory,
)
from diskhop.plans import PlannedSteps, Prediction, RunPlan, StepPlan

# Throughput of one core: edges times columns of a sum over a block larger than the caches, and products of matrices.
_SUMS_PER_SECOND = 1.2e9
_FLOPS_PER_SECOND = 50e9
_THREADS_POWER = 0.8
# Parts take at most 1 / this of memory, so that most is left for the block.
_PARTS_SHARE = 4
_MOST_SUMMED_ROWS = 16 * TILE_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedPlan(PlannedSteps, RunPlan):
    """How a built-in model predicts for all nodes.

    layers: one per layer.
    part_rows: rows of a part that is read, computed and written together.
    summed_rows: rows of a part whose sums are written.
    workers: parts that are computed at the same time, each with as many of the threads as the others.
    product_rows: rows per product.
    stretch_edges: edges that are read together.
    steps: the work, in order.
    work_bytes: largest disk space of the tables.
    result_bytes: disk space of the tables that stay.
    """

    layers: tuple[LayerPlan, ...]
    part_rows: int
    summed_rows: int
    workers: int
    product_rows: int
    stretch_edges: int
    steps: tuple[StepPlan, ...] = field(default_factory=tuple)
    work_bytes: int = 0
    result_bytes: int = 0

    @property
    def threads_per_worker(self) -> int:
        """Threads of each worker."""
        return self.threads // self.workers

    def __str__(self) -> str:
        passes = sum(layer.num_blocks for layer in self.layers)
        return (
            f"{len(self.layers)} layers in {passes} passes over the neighbour lists, reading "
            f"{format_bytes(self.bytes_read)} and writing {format_bytes(self.bytes_written)}, up to "
            f"{format_bytes(self.work_bytes)} on disk during the work; about {self.seconds:.1f} s"
        )


def plan_streamed(
    work: StreamedWork,
    *,
    memory_bytes: int,
    threads: int,
    engine: str,
    disk: DiskModel,
    later: Mapping[str, int] = MappingProxyType({}),
    blocks: Sequence[Sequence[int]] = (),
) -> StreamedPlan:
    """Choose the widest blocks that fit into memory, and predict the work. Raises BudgetError.

    later: memory by name of what reads the outputs, in bytes.
    blocks: tiles of each layer's blocks, to be kept.
    """
    sizes = _choose_sizes(work, memory_bytes - sum(later.values()), memory_bytes, threads)
    kept = blocks or [()] * len(work.layers)
    layers = tuple(
        _plan_layer(work, number, sizes, memory_bytes, tuple(kept[number])) for number in range(len(work.layers))
    )
    sizes = _with_rest(work, layers, sizes, memory_bytes)
    reserved = _largest_phase(work, layers, sizes)
    reading = {"reading outputs": reading_outputs_bytes(work.wanted_tiles, sizes.part_rows, threads), **later}
    Budget(memory_bytes).require(max(reserved, reading, key=lambda phase: sum(phase.values())))
    steps = _plan_steps(work, layers, threads, disk)
    reasons = tuple(_reason(number, layer, work.layers[number]) for number, layer in enumerate(layers))
    plan = StreamedPlan(
        engine=engine,
        threads=threads,
        memory_bytes=memory_bytes,
        reserved=reserved,
        reasons=reasons,
        layers=layers,
        part_rows=sizes.part_rows,
        summed_rows=sizes.summed_rows,
        workers=sizes.workers,
        product_rows=sizes.product_rows,
        stretch_edges=sizes.stretch_edges,
        steps=steps,
        work_bytes=_work_bytes(work, layers),
        result_bytes=work.graph.tile_bytes(work.table_tiles(len(layers))) + _kept_bytes(work),
    )
    cores_seconds = sum(
        _sums_seconds(shape, work.graph, threads) + _products_seconds(shape, work.graph, threads)
        for shape in work.layers
    )
    predicted = Prediction(
        epoch_seconds=plan.seconds,
        io_seconds=disk.sequential_seconds(plan.bytes_read, plan.bytes_written),
        cores_seconds=cores_seconds,
        compute_seconds=cores_seconds,
        bytes_read=plan.bytes_read,
        bytes_written=plan.bytes_written,
        disk_bytes=plan.work_bytes,
    )
    return replace(plan, predicted=predicted)


def _choose_sizes(work: StreamedWork, reading_bytes: int, memory_bytes: int, threads: int) -> Sizes:
    """Choose the parts: a worker for every thread, or as many as memory holds.

    reading_bytes: memory for reading the outputs.
    """
    rows = product_rows(work)
    stretch = stretch_edges(work.graph.num_edges, memory_bytes, work.graph.index_bytes)

    def is_small(sizes: Sizes) -> bool:
        passes = [products_memory(work, number, 0, 1, sizes) for number in range(len(work.layers))]
        needed = max(sum(phase.values()) for phase in [*passes, first_rows_memory(work, sizes)])
        is_read = reading_outputs_bytes(work.wanted_tiles, sizes.part_rows, threads) <= reading_bytes
        return is_read and needed <= memory_bytes // _PARTS_SHARE

    parts = [part_rows for part_rows in _halves(TILE_ROWS) if part_rows > rows]
    workers = [count for count in range(threads, 0, -1) if threads % count == 0]
    found = (Sizes(part_rows, rows, stretch, count, part_rows) for count in workers for part_rows in parts)
    return next(filter(is_small, found), Sizes(rows, rows, stretch, 1, rows))


def _with_rest(work: StreamedWork, layers: Sequence[LayerPlan], sizes: Sizes, memory_bytes: int) -> Sizes:
    """Share out what the blocks leave: more rows whose sums are written together, for fewer calls."""

    def fits(wanted: Sizes) -> bool:
        return sum(_largest_phase(work, layers, wanted).values()) <= memory_bytes

    more = [rows for rows in _halves(_MOST_SUMMED_ROWS) if sizes.part_rows < rows < 2 * work.graph.num_nodes]
    return next(filter(fits, (replace(sizes, summed_rows=rows) for rows in more)), sizes)


def _halves(rows: int) -> Iterator[int]:
    while rows > 0:
        yield rows
        rows //= 2


def _plan_layer(
    work: StreamedWork, number: int, sizes: Sizes, memory_bytes: int, kept_blocks: tuple[int, ...]
) -> LayerPlan:
    """Choose the blocks of a layer, unless some are kept: as few as fit, the last one as wide as fits."""
    shape, graph = work.layers[number], work.graph
    block_rows = graph.num_nodes if shape.needs_own_row else max(1, graph.num_sources)

    def widest(memory: Callable[[StreamedWork, int, int, int, Sizes], dict[str, int]]) -> int:
        def fits(tiles: int) -> bool:
            return sum(memory(work, number, block_rows, tiles, sizes).values()) <= memory_bytes

        return next(filter(fits, range(shape.summed_tiles, 1, -1)), 1)

    blocks = kept_blocks or _blocks(shape.summed_tiles, widest(sums_memory), widest(products_memory))
    edge_seconds = blocks[-1] * TILE_COLUMNS / _SUMS_PER_SECOND
    return LayerPlan(
        aggregates_first=shape.aggregates_first,
        blocks=blocks,
        block_rows=block_rows,
        row_edges=shape.flops / _FLOPS_PER_SECOND / edge_seconds,
    )


def _blocks(num_tiles: int, most: int, most_of_last: int) -> tuple[int, ...]:
    """Divide tiles into as few blocks as possible: the last one as wide as possible, the others alike."""
    if most_of_last >= num_tiles:
        return (num_tiles,)
    num_others = -(-(num_tiles - most_of_last) // most)
    last = min(most_of_last, num_tiles - num_others)
    each, more = divmod(num_tiles - last, num_others)
    return (*(each + (number < more) for number in range(num_others)), last)


def _largest_phase(work: StreamedWork, layers: Sequence[LayerPlan], sizes: Sizes) -> dict[str, int]:
    phases = [first_rows_memory(work, sizes)]
    for number, layer in enumerate(layers):
        *others, last = layer.blocks
        phases.append(products_memory(work, number, layer.block_rows, last, sizes))
        if others:
            phases.append(sums_memory(work, number, layer.block_rows, max(others), sizes))
    return max(phases, key=lambda phase: sum(phase.values()))


def _plan_steps(work: StreamedWork, layers: Sequence[LayerPlan], threads: int, disk: DiskModel) -> tuple[StepPlan, ...]:
    graph = work.graph

    def step(name: str, bytes_read: int, bytes_written: int, cpu_seconds: float) -> StepPlan:
        seconds = max(disk.sequential_seconds(bytes_read, bytes_written), cpu_seconds)
        return StepPlan(name=name, bytes_read=bytes_read, bytes_written=bytes_written, seconds=seconds)

    first = graph.tile_bytes(work.table_tiles(0))
    steps = [step("read features", graph.num_nodes * graph.feature_row_bytes, first, 0)]
    for number, layer in enumerate(layers):
        shape = work.layers[number]
        *others, last = layer.blocks
        written, own = graph.tile_bytes(sum(others)), graph.tile_bytes(shape.own_tiles)
        lists = graph.lists_bytes
        scores = graph.tile_bytes(shape.score_tiles)
        if scores:
            norms = graph.tile_bytes(2 * shape.score_tiles)
            steps.append(step(f"layer {number + 1}: attention", lists + 2 * scores, norms, 0))
            lists += 2 * scores + norms
        sums_seconds = _sums_seconds(shape, graph, threads)
        out = graph.tile_bytes(work.table_tiles(number + 1))
        if others:
            seconds = sums_seconds * sum(others) / shape.summed_tiles
            steps.append(step(f"layer {number + 1}: first sums", written + len(others) * lists, written, seconds))
        seconds = sums_seconds * last / shape.summed_tiles + _products_seconds(shape, graph, threads)
        steps.append(step(f"layer {number + 1}", graph.tile_bytes(last) + lists + written + own, out, seconds))
    return tuple(steps)


def _sums_seconds(shape: LayerShape, graph: GraphCounts, threads: int) -> float:
    sums = graph.num_edges * shape.summed_tiles * TILE_COLUMNS
    return float(sums / _SUMS_PER_SECOND / threads**_THREADS_POWER)


def _products_seconds(shape: LayerShape, graph: GraphCounts, threads: int) -> float:
    return graph.num_nodes * shape.flops / _FLOPS_PER_SECOND / threads


def _work_bytes(work: StreamedWork, layers: Sequence[LayerPlan]) -> int:
    """Return the largest disk space: a layer's table, its sums and the next table exist together, with kept ones."""
    graph = work.graph
    most = 0
    for number, layer in enumerate(layers):
        shape = work.layers[number]
        tiles = work.table_tiles(number) + work.table_tiles(number + 1) + 2 * shape.score_tiles
        most = max(most, tiles + sum(layer.blocks[:-1]))
    return graph.tile_bytes(most) + _kept_bytes(work)


def _kept_bytes(work: StreamedWork) -> int:
    """Return the disk space of tables that are kept for other uses."""
    return work.graph.tile_bytes(sum(work.table_tiles(number) for number, tiles in enumerate(work.kept_tiles) if tiles))


def _reason(number: int, layer: LayerPlan, shape: LayerShape) -> str:
    order = "aggregates first" if layer.aggregates_first else "transforms first"
    columns = TILE_COLUMNS * shape.summed_tiles
    if layer.num_blocks == 1:
        how = f"all {columns} summed columns in memory, sums go on to the products"
    else:
        widest = TILE_COLUMNS * max(layer.blocks)
        how = f"{layer.num_blocks} passes of up to {widest} of {columns} summed columns, the last one with the products"
    return f"Layer {number + 1}: {order} (fewer columns to sum); {how}"
