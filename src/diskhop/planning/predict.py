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
from diskhop.hops.make.passes import aligned_bytes
from diskhop.hops.stream.features import reading_features_bytes
from diskhop.hops.stream.lists import streaming_bytes, stretch_edges
from diskhop.hops.stream.parts import TILE_ROW_BYTES, moving_bytes
from diskhop.hops.tables import TILE_COLUMNS, TILE_ROWS
from diskhop.plans import Prediction, RunPlan

# Throughput of one core: edges times columns of a sum over a block larger than the caches, and products of matrices.
_SUMS_PER_SECOND = 0.6e9
_FLOPS_PER_SECOND = 50e9
_THREADS_POWER = 0.8
# Parts take at most 1 / this of memory, so that most is left for the block.
_PARTS_SHARE = 4
# Parts that are summed together take at most 1 / this of memory: a few thousand rows alone have too few edges to share.
_SUMS_SHARE, _MOST_PARTS_AT_ONCE = 16, 16
# A call of a product costs some 100 microseconds, so it gets rows of about this size, or this share of a small table,
# and a power of two of them. It depends on model and graph alone: libraries round differently for other shapes.
_MOST_ROWS, _LEAST_ROWS, _ROWS_BYTES, _ROWS_SHARE = 4096, 8, 4 << 20, 1000
# Arrays of a block of rows that exist at once, of the widest kind: operands, results and copies.
_ARRAYS_AT_ONCE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """Sizes of a layer, in tiles of columns.

    kind: how neighbours are weighed: mean, symmetric or attention.
    aggregates_first: whether sums are of the layer's input rather than of its product.
    summed_tiles: tiles that are summed over neighbours; the first ones of the layer's table.
    table_tiles: tiles of the layer's table.
    own_tiles: tiles that are read again for each row's own part.
    needs_own_row: whether sums include the row itself, so that a block has all rows.
    score_tiles: tiles of attention scores, of sources and targets each; 0 without attention.
    widest: most values of a row in a product of the layer.
    flops: floating-point operations per row.
    """

    kind: str
    aggregates_first: bool
    summed_tiles: int
    table_tiles: int
    own_tiles: int
    needs_own_row: bool
    score_tiles: int
    widest: int
    flops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCounts:
    """Counts of a graph.

    num_nodes: nodes.
    num_edges: edges of the lists that are streamed.
    index_bytes: bytes per index.
    num_sources: highest source in the lists + 1.
    feature_row_bytes: bytes of a feature row on disk.
    feature_dim: values per feature row.
    """

    num_nodes: int
    num_edges: int
    index_bytes: int
    num_sources: int
    feature_row_bytes: int
    feature_dim: int

    @property
    def lists_bytes(self) -> int:
        """Bytes of the lists."""
        return self.num_edges * self.index_bytes + 8 * (self.num_nodes + 1)

    def tile_bytes(self, num_tiles: int) -> int:
        """Bytes of some tiles of all rows, on disk."""
        groups = -(-self.num_nodes // TILE_ROWS)
        return groups * TILE_ROWS * num_tiles * TILE_ROW_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """A step of prediction, for result.json and for people.

    name: name of the step.
    bytes_read, bytes_written: disk traffic.
    seconds: predicted time.
    """

    name: str
    bytes_read: int
    bytes_written: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPlan:
    """How a layer is computed.

    aggregates_first: see LayerShape.
    block_tiles: tiles per block.
    num_blocks: blocks, each with a pass over the lists.
    block_rows: rows of a block.
    is_fused: sums go on to the products without being written.
    """

    aggregates_first: bool
    block_tiles: int
    num_blocks: int
    block_rows: int
    is_fused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedPlan(RunPlan):
    """How a built-in model predicts for all nodes.

    layers: one per layer.
    part_rows: rows of a part that is read, computed and written together.
    parts_at_once: parts that are summed together.
    product_rows: rows per product.
    stretch_edges: edges that are read together.
    steps: the work, in order.
    work_bytes: largest disk space of the tables.
    result_bytes: disk space of the tables that stay.
    """

    layers: tuple[LayerPlan, ...]
    part_rows: int
    parts_at_once: int
    product_rows: int
    stretch_edges: int
    steps: tuple[StepPlan, ...] = field(default_factory=tuple)
    work_bytes: int = 0
    result_bytes: int = 0

    @property
    def bytes_read(self) -> int:
        """Bytes read by all steps."""
        return sum(step.bytes_read for step in self.steps)

    @property
    def bytes_written(self) -> int:
        """Bytes written by all steps."""
        return sum(step.bytes_written for step in self.steps)

    @property
    def seconds(self) -> float:
        """Predicted time of all steps."""
        return sum(step.seconds for step in self.steps)

    def __str__(self) -> str:
        passes = sum(layer.num_blocks for layer in self.layers)
        return (
            f"{len(self.layers)} layers in {passes} passes over the neighbour lists, reading "
            f"{format_bytes(self.bytes_read)} and writing {format_bytes(self.bytes_written)}, up to "
            f"{format_bytes(self.work_bytes)} on disk during the work; about {self.seconds:.1f} s"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedWork:
    """Layers to compute, and their graph.

    layers: the layers, in order.
    output_tiles: tiles of the last layer's output.
    kept_tiles: tiles of each layer's input that are kept for other uses, in addition to what the layer reads.
    wanted_tiles: tiles of the outputs that are read at the end.
    graph: counts of the graph.
    """

    layers: tuple[LayerShape, ...]
    output_tiles: int
    kept_tiles: tuple[int, ...]
    wanted_tiles: int
    graph: GraphCounts

    def table_tiles(self, number: int) -> int:
        """Return the tiles of table `number`: the input of a layer, or the last one's output."""
        if number == len(self.layers):
            return self.output_tiles
        return self.layers[number].table_tiles + self.kept_tiles[number]


def product_rows(work: StreamedWork) -> int:
    """Return the rows per product, a function of model and graph alone."""
    row_bytes = 4 * max(layer.widest for layer in work.layers)
    rows_bytes = min(_ROWS_BYTES, work.graph.num_nodes * row_bytes // _ROWS_SHARE)
    return min(_MOST_ROWS, max(_LEAST_ROWS, 1 << max(0, (rows_bytes // row_bytes).bit_length() - 1)))


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes that all steps share."""

    part_rows: int
    product_rows: int
    stretch_edges: int
    parts_at_once: int = 1

    def part_bytes(self, num_tiles: int) -> int:
        """Memory of one part."""
        return self.part_rows * num_tiles * TILE_ROW_BYTES

    def moving_bytes(self, num_tiles: int) -> int:
        """Memory of reading or writing parts."""
        return moving_bytes(num_tiles, self.part_rows)

    def computing_bytes(self, layer: LayerShape) -> int:
        """Memory of the products of a layer."""
        return _ARRAYS_AT_ONCE * self.product_rows * 4 * layer.widest

    def listing_bytes(self, graph: GraphCounts) -> int:
        """Memory of streaming lists."""
        rows = self.part_rows * self.parts_at_once
        return streaming_bytes(self.stretch_edges, graph.index_bytes, graph.num_edges, rows)


def plan_streamed(
    work: StreamedWork,
    *,
    memory_bytes: int,
    threads: int,
    engine: str,
    disk: DiskModel,
    later: Mapping[str, int] = MappingProxyType({}),
) -> StreamedPlan:
    """Choose the widest blocks that fit into memory, and predict the work. Raises BudgetError.

    later: memory by name of what reads the outputs, in bytes.
    """
    sizes = _choose_sizes(work, memory_bytes - sum(later.values()), memory_bytes, threads)
    layers = tuple(_plan_layer(work, number, sizes, memory_bytes) for number in range(len(work.layers)))
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
        product_rows=sizes.product_rows,
        stretch_edges=sizes.stretch_edges,
        steps=steps,
        work_bytes=_work_bytes(work, layers),
        result_bytes=work.graph.tile_bytes(work.table_tiles(len(layers))) + _kept_bytes(work),
    )
    seconds = plan.seconds
    io_seconds = _disk_seconds(disk, plan.bytes_read, plan.bytes_written)
    predicted = Prediction(
        epoch_seconds=seconds,
        io_seconds=io_seconds,
        cores_seconds=sum(_cpu_seconds(work, number, threads) for number in range(len(layers))),
        compute_seconds=sum(_cpu_seconds(work, number, threads) for number in range(len(layers))),
        bytes_read=plan.bytes_read,
        bytes_written=plan.bytes_written,
        disk_bytes=plan.work_bytes,
    )
    return replace(plan, predicted=predicted)


def layer_memory(work: StreamedWork, number: int, layer: LayerPlan, sizes: _Sizes) -> dict[str, int]:
    """Return the memory of a layer's passes by name."""
    shape, graph = work.layers[number], work.graph
    reserved = {"column block": _block_bytes(shape, layer.block_rows, layer.block_tiles)}
    reserved["neighbour lists"] = sizes.listing_bytes(graph)
    own = sizes.moving_bytes(shape.own_tiles + 3 * shape.score_tiles) if shape.score_tiles or layer.is_fused else 0
    written = work.table_tiles(number + 1) if layer.is_fused else layer.block_tiles
    # Sums, and with attention the scores and norms of their rows.
    summed = sizes.parts_at_once * sizes.part_bytes(layer.block_tiles + 3 * shape.score_tiles)
    rows_bytes = summed + sizes.moving_bytes(written) + own
    if layer.is_fused:
        rows_bytes += sizes.computing_bytes(shape)
    # The block is filled before lists are streamed.
    reserved["rows in flight"] = max(rows_bytes, sizes.moving_bytes(layer.block_tiles + shape.score_tiles))
    return reserved


def row_memory(work: StreamedWork, number: int, sizes: _Sizes) -> dict[str, int]:
    """Return the memory of computing rows of table `number`, from features or from sums and own values."""
    if number == 0:
        graph = work.graph
        read = reading_features_bytes(graph.feature_row_bytes, graph.feature_dim, sizes.part_rows)
        computed = work.layers[0]
    else:
        computed = work.layers[number - 1]
        read = sizes.moving_bytes(computed.summed_tiles) + sizes.moving_bytes(computed.own_tiles)
    rows_bytes = read + sizes.moving_bytes(work.table_tiles(number))
    return {"rows in flight": rows_bytes, "products": sizes.computing_bytes(computed)}


def _choose_sizes(work: StreamedWork, reading_bytes: int, memory_bytes: int, threads: int) -> _Sizes:
    """Choose the parts. reading_bytes: memory for reading the outputs."""
    rows = product_rows(work)
    stretch = stretch_edges(work.graph.num_edges, memory_bytes, work.graph.index_bytes)
    part_rows = TILE_ROWS
    while part_rows > rows:
        sizes = _Sizes(part_rows, rows, stretch)
        needed = max(sum(row_memory(work, number, sizes).values()) for number in range(len(work.layers) + 1))
        is_read = reading_outputs_bytes(work.wanted_tiles, part_rows, threads) <= reading_bytes
        if is_read and needed <= memory_bytes // _PARTS_SHARE:
            break
        part_rows //= 2
    widest = max(layer.summed_tiles + 3 * layer.score_tiles for layer in work.layers)
    affordable = memory_bytes // _SUMS_SHARE // (part_rows * widest * TILE_ROW_BYTES)
    at_once = 1 << (min(max(affordable, 1), _MOST_PARTS_AT_ONCE).bit_length() - 1)
    return _Sizes(part_rows, rows, stretch, at_once)


def _plan_layer(work: StreamedWork, number: int, sizes: _Sizes, memory_bytes: int) -> LayerPlan:
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
    if fits(fused):
        return fused
    widest = next((tiles for tiles in range(shape.summed_tiles, 1, -1) if fits(planned(tiles, False))), 1)
    # Blocks of equal width: none is left with a few columns.
    return planned(-(-shape.summed_tiles // -(-shape.summed_tiles // widest)), False)


def reading_outputs_bytes(num_tiles: int, part_rows: int, threads: int) -> int:
    """Return the memory of reading the outputs: each thread that writes predictions has readers of its own."""
    return (threads + 1) * moving_bytes(num_tiles, part_rows)


def _largest_phase(work: StreamedWork, layers: Sequence[LayerPlan], sizes: _Sizes) -> dict[str, int]:
    phases = [layer_memory(work, number, layer, sizes) for number, layer in enumerate(layers)]
    phases += [row_memory(work, number, sizes) for number in range(len(layers) + 1)]
    return max(phases, key=lambda phase: sum(phase.values()))


def _plan_steps(work: StreamedWork, layers: Sequence[LayerPlan], threads: int, disk: DiskModel) -> tuple[StepPlan, ...]:
    graph = work.graph

    def step(name: str, bytes_read: int, bytes_written: int, cpu_seconds: float) -> StepPlan:
        seconds = max(_disk_seconds(disk, bytes_read, bytes_written), cpu_seconds)
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
        sums_seconds = graph.num_edges * shape.summed_tiles * TILE_COLUMNS / _SUMS_PER_SECOND / threads**_THREADS_POWER
        out = graph.tile_bytes(work.table_tiles(number + 1))
        products_seconds = graph.num_nodes * shape.flops / _FLOPS_PER_SECOND / threads
        name = f"layer {number + 1}"
        if layer.is_fused:
            steps.append(step(name, summed + lists + own, out, sums_seconds + products_seconds))
        else:
            steps.append(step(f"{name}: sums", summed + lists, summed, sums_seconds))
            steps.append(step(f"{name}: products", summed + own, out, products_seconds))
    return tuple(steps)


def _cpu_seconds(work: StreamedWork, number: int, threads: int) -> float:
    shape, graph = work.layers[number], work.graph
    sums = graph.num_edges * shape.summed_tiles * TILE_COLUMNS / _SUMS_PER_SECOND / threads**_THREADS_POWER
    return float(sums + graph.num_nodes * shape.flops / _FLOPS_PER_SECOND / threads)


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


def _block_bytes(shape: LayerShape, block_rows: int, tiles: int) -> int:
    return aligned_bytes((block_rows + 1) * (tiles + shape.score_tiles) * TILE_ROW_BYTES)


def _disk_seconds(disk: DiskModel, bytes_read: int, bytes_written: int) -> float:
    read_seconds = bytes_read / disk.sequential_read_bytes_per_second
    return read_seconds + bytes_written / disk.sequential_write_bytes_per_second
