"""Planning of prediction layer by layer: a pure function from a model's shape, counts and a budget to blocks and bytes.

A layer *sums* some columns over the neighbours of every node. A *block* is as many of these columns as memory holds, of
all rows that an edge may need. If it is all of them, sums go on to the layer's products at once; otherwise they are
written, and read again with the rows' own values (PP-GNN's propagation, for layers with parameters).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    layer_memory,
    product_rows,
    reading_outputs_bytes,
    row_memory,
)
from diskhop.plans import PlannedSteps, Prediction, RunPlan, StepPlan

# Throughput of one core: edges times columns of a sum over a block larger than the caches, and products of matrices.
_SUMS_PER_SECOND = 1.2e9
_FLOPS_PER_SECOND = 50e9
_THREADS_POWER = 0.8
# Parts take at most 1 / this of memory, so that most is left for the block.
_PARTS_SHARE = 4
_MOST_PARTS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedPlan(PlannedSteps, RunPlan):
    """How a built-in model predicts for all nodes.

    layers: one per layer.
    part_rows: rows of a part that is read, computed and written together.
    parts_at_once: parts that are summed together.
    workers: parts that are multiplied at the same time, each with as many of the threads as the others.
    product_rows: rows per product.
    stretch_edges: edges that are read together.
    steps: the work, in order.
    work_bytes: largest disk space of the tables.
    result_bytes: disk space of the tables that stay.
    """

    layers: tuple[LayerPlan, ...]
    part_rows: int
    parts_at_once: int
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
    block_tiles: Sequence[int] = (),
) -> StreamedPlan:
    """Choose the widest blocks that fit into memory, and predict the work. Raises BudgetError.

    later: memory by name of what reads the outputs, in bytes.
    block_tiles: tiles per block of each layer, to be kept.
    """
    sizes = _choose_sizes(work, memory_bytes - sum(later.values()), memory_bytes, threads)
    kept = block_tiles or [0] * len(work.layers)
    layers = tuple(_plan_layer(work, number, sizes, memory_bytes, kept[number]) for number in range(len(work.layers)))
    sizes = _with_rest(work, layers, sizes, memory_bytes, threads)
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
        parts_at_once=sizes.parts_at_once,
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
    """Choose the parts. reading_bytes: memory for reading the outputs."""
    rows = product_rows(work)
    stretch = stretch_edges(work.graph.num_edges, memory_bytes, work.graph.index_bytes)
    part_rows = TILE_ROWS
    while part_rows > rows:
        sizes = Sizes(part_rows, rows, stretch)
        needed = max(sum(row_memory(work, number, sizes).values()) for number in range(len(work.layers) + 1))
        is_read = reading_outputs_bytes(work.wanted_tiles, part_rows, threads) <= reading_bytes
        if is_read and needed <= memory_bytes // _PARTS_SHARE:
            break
        part_rows //= 2
    return Sizes(part_rows, rows, stretch)


def _with_rest(work: StreamedWork, layers: Sequence[LayerPlan], sizes: Sizes, memory_bytes: int, threads: int) -> Sizes:
    """Share out what the blocks leave: parts that are summed or multiplied at the same time.

    A few thousand rows alone have too few edges to share among threads.
    """

    def fits(wanted: Sizes) -> bool:
        return sum(_largest_phase(work, layers, wanted).values()) <= memory_bytes

    most_parts = min(_MOST_PARTS_AT_ONCE, -(-work.graph.num_nodes // sizes.part_rows))
    at_once = (replace(sizes, parts_at_once=1 << power) for power in range(most_parts.bit_length() - 1, 0, -1))
    sizes = next(filter(fits, at_once), sizes)
    # Each worker has as many threads as the others.
    shared = (replace(sizes, workers=count) for count in range(threads, 1, -1) if threads % count == 0)
    return next(filter(fits, shared), sizes)


def _plan_layer(work: StreamedWork, number: int, sizes: Sizes, memory_bytes: int, kept_tiles: int) -> LayerPlan:
    """Choose the blocks of a layer. kept_tiles: tiles per block, or 0 for as many as fit."""
    shape, graph = work.layers[number], work.graph
    block_rows = graph.num_nodes if shape.needs_own_row else max(1, graph.num_sources)

    def planned(tiles: int, is_fused: bool) -> LayerPlan:
        return LayerPlan(
            aggregates_first=shape.aggregates_first,
            block_tiles=tiles,
            num_blocks=-(-shape.summed_tiles // tiles),
            block_rows=block_rows,
            is_fused=is_fused,
        )

    def fits(layer: LayerPlan) -> bool:
        return sum(layer_memory(work, number, layer, sizes).values()) <= memory_bytes

    fused = planned(shape.summed_tiles, is_fused=True)
    if fits(fused) and kept_tiles in (0, shape.summed_tiles):
        return fused
    if kept_tiles:
        return planned(kept_tiles, is_fused=False)
    widest = next((tiles for tiles in range(shape.summed_tiles, 1, -1) if fits(planned(tiles, False))), 1)
    # Blocks of equal width: none is left with a few columns.
    return planned(-(-shape.summed_tiles // -(-shape.summed_tiles // widest)), False)


def _largest_phase(work: StreamedWork, layers: Sequence[LayerPlan], sizes: Sizes) -> dict[str, int]:
    phases = [layer_memory(work, number, layer, sizes) for number, layer in enumerate(layers)]
    phases += [row_memory(work, number, sizes) for number in range(len(layers) + 1)]
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
        summed, own = graph.tile_bytes(shape.summed_tiles), graph.tile_bytes(shape.own_tiles)
        lists = layer.num_blocks * graph.lists_bytes
        scores = graph.tile_bytes(shape.score_tiles)
        if shape.score_tiles:
            norms = graph.tile_bytes(2 * shape.score_tiles)
            steps.append(step(f"layer {number + 1}: attention", graph.lists_bytes + 2 * scores, norms, 0))
            lists += layer.num_blocks * (2 * scores + norms)
        sums_seconds = _sums_seconds(shape, graph, threads)
        out = graph.tile_bytes(work.table_tiles(number + 1))
        products_seconds = _products_seconds(shape, graph, threads)
        name = f"layer {number + 1}"
        if layer.is_fused:
            steps.append(step(name, summed + lists + own, out, sums_seconds + products_seconds))
        else:
            steps.append(step(f"{name}: sums", summed + lists, summed, sums_seconds))
            steps.append(step(f"{name}: products", summed + own, out, products_seconds))
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
        most = max(most, tiles + (0 if layer.is_fused else shape.summed_tiles))
    return graph.tile_bytes(most) + _kept_bytes(work)


def _kept_bytes(work: StreamedWork) -> int:
    """Return the disk space of tables that are kept for other uses."""
    return work.graph.tile_bytes(sum(work.table_tiles(number) for number, tiles in enumerate(work.kept_tiles) if tiles))


def _reason(number: int, layer: LayerPlan, shape: LayerShape) -> str:
    order = "aggregates first" if layer.aggregates_first else "transforms first"
    columns = TILE_COLUMNS * shape.summed_tiles
    if layer.is_fused:
        how = f"all {columns} summed columns in memory, sums go on to the products"
    else:
        how = f"{layer.num_blocks} passes of {TILE_COLUMNS * layer.block_tiles} of {columns} summed columns"
    return f"Layer {number + 1}: {order} (fewer columns to sum); {how}"
