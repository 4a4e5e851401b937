"""Sizes of prediction layer by layer: shapes of layers, counts of a graph, and the memory of each piece of work."""

from __future__ import annotations

from dataclasses import dataclass, replace

from diskhop.hops.make.passes import aligned_bytes
from diskhop.hops.stream.features import reading_features_bytes
from diskhop.hops.stream.lists import streaming_bytes
from diskhop.hops.stream.parts import band_bytes, moving_bytes
from diskhop.hops.tables import TILE_COLUMNS, TILE_ROWS

TILE_ROW_BYTES = 4 * TILE_COLUMNS
# Arrays of a block of rows that exist at once, of the widest kind: operands, results and copies. Features that are not
# multiplied: converted and normalised.
_ARRAYS_AT_ONCE, _FEATURE_ARRAYS = 6, 3
# A call of a product costs some 100 microseconds, so it gets rows of about this size, or this share of a small table,
# and a power of two of them. It depends on model and graph alone: libraries round differently for other shapes.
_MOST_ROWS, _LEAST_ROWS, _ROWS_BYTES, _ROWS_SHARE = 4096, 8, 2 << 20, 1000


def table_bytes(num_rows: int, num_tiles: int) -> int:
    """Return the bytes of a table of some tiles, on disk."""
    groups = -(-num_rows // TILE_ROWS)
    return groups * TILE_ROWS * num_tiles * TILE_ROW_BYTES


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

    def sums_lack_rows(self, part_rows: int) -> bool:
        """Return whether sums that are written have no rows without edges, which are zeros. Parts are groups then."""
        return self.kind == "mean" and part_rows == TILE_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCounts:
    """Counts of a graph.

    num_nodes: nodes.
    num_edges: edges of the lists that are streamed.
    index_bytes: bytes per index.
    num_sources: highest source in the lists + 1.
    feature_row_bytes: bytes of a feature row on disk.
    feature_dim: values per feature row.
    num_stored: rows of sums that lack rows without edges; None if no sums do.
    """

    num_nodes: int
    num_edges: int
    index_bytes: int
    num_sources: int
    feature_row_bytes: int
    feature_dim: int
    num_stored: int | None = None

    @property
    def lists_bytes(self) -> int:
        """Bytes of the lists."""
        return self.num_edges * self.index_bytes + 8 * (self.num_nodes + 1)

    def tile_bytes(self, num_tiles: int) -> int:
        """Bytes of some tiles of all rows, on disk."""
        return table_bytes(self.num_nodes, num_tiles)

    def sums_tile_bytes(self, lack_rows: bool) -> int:
        """Bytes of a tile of sums on disk, which may lack rows without edges."""
        if lack_rows and self.num_stored is not None:
            return self.num_stored * TILE_ROW_BYTES
        return self.tile_bytes(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPlan:
    """How a layer is computed.

    aggregates_first: see LayerShape.
    blocks: tiles of each block, in order. Sums of the last one go on to the products without being written.
    block_rows: rows of a block.
    sums_lack_rows: see LayerShape.sums_lack_rows().
    """

    aggregates_first: bool
    blocks: tuple[int, ...]
    block_rows: int
    sums_lack_rows: bool = False

    @property
    def num_blocks(self) -> int:
        """Blocks, each with a pass over the lists."""
        return len(self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedWork:
    """Layers to compute, and their graph.

    layers: the layers, in order.
    output_tiles: tiles of the last layer's output.
    kept_tiles: tiles of each layer's input that are kept for other uses, in addition to what the layer reads.
    wanted_tiles: tiles of the outputs that are read at the end.
    graph: counts of the graph.
    kept: numbers of the layers' tables that stay until the end.
    takes_features: whether the first layer's input is the features as they are.
    """

    layers: tuple[LayerShape, ...]
    output_tiles: int
    kept_tiles: tuple[int, ...]
    wanted_tiles: int
    graph: GraphCounts
    kept: frozenset[int] = frozenset()
    takes_features: bool = False

    def block_rows(self, number: int) -> int:
        """Return the rows of a layer's blocks."""
        return self.graph.num_nodes if self.layers[number].needs_own_row else max(1, self.graph.num_sources)

    @property
    def own_are_features(self) -> bool:
        """Whether the first layer reads the rows' own part from the features, and table 0 has rows for blocks alone."""
        first = self.layers[0]
        has_all = first.own_tiles == first.summed_tiles == first.table_tiles
        return self.takes_features and first.aggregates_first and has_all

    @property
    def widest(self) -> int:
        """Most values of a row in a product of any layer."""
        return max(layer.widest for layer in self.layers)

    def table_tiles(self, number: int) -> int:
        """Return the tiles of table `number`: the input of a layer, or the last one's output."""
        if number == len(self.layers):
            return self.output_tiles
        return self.layers[number].table_tiles + self.kept_tiles[number]


def product_rows(widest: int, num_nodes: int) -> int:
    """Return the rows per product, a function of model and graph alone.

    widest: most values of a row in a product.
    """
    row_bytes = 4 * widest
    rows_bytes = min(_ROWS_BYTES, num_nodes * row_bytes // _ROWS_SHARE)
    return min(_MOST_ROWS, max(_LEAST_ROWS, 1 << max(0, (rows_bytes // row_bytes).bit_length() - 1)))


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes that all steps share. summed_rows: rows of a part whose sums are written."""

    part_rows: int
    product_rows: int
    stretch_edges: int
    workers: int
    summed_rows: int

    def part_bytes(self, num_tiles: int) -> int:
        """Memory of one part."""
        return self.part_rows * num_tiles * TILE_ROW_BYTES

    def moving_bytes(self, num_tiles: int) -> int:
        """Memory of reading or writing parts."""
        return moving_bytes(TILE_COLUMNS * num_tiles, self.part_rows)

    def computing_bytes(self, widest: int) -> int:
        """Memory of products whose rows have some values at most."""
        return _ARRAYS_AT_ONCE * self.product_rows * 4 * widest

    def listing_bytes(self, index_bytes: int, num_edges: int) -> int:
        """Memory of streaming lists."""
        return streaming_bytes(self.stretch_edges, index_bytes, num_edges, self.part_rows)

    def scoring_bytes(self, num_tiles: int) -> int:
        """Memory of reading scores and norms of parts, and of the part in use."""
        return self.moving_bytes(num_tiles) + self.part_bytes(num_tiles)


def sums_memory(work: StreamedWork, number: int, tiles: int, sizes: Sizes) -> dict[str, int]:
    """Return the memory of writing the sums of a block of some tiles, by name. A pass writes the norms first.

    Without tiles it is the memory of the pass for the norms.
    """
    shape = work.layers[number]
    sizes = replace(sizes, part_rows=sizes.summed_rows)
    scores = sizes.scoring_bytes(3 * shape.score_tiles) if shape.score_tiles else 0
    norms = 2 * shape.score_tiles
    rows_bytes = sizes.workers * (sizes.moving_bytes(max(tiles, norms)) + scores)
    return _passing_memory(work, number, tiles, rows_bytes, sizes)


def products_memory(work: StreamedWork, number: int, tiles: int, sizes: Sizes) -> dict[str, int]:
    """Return the memory of a layer's last pass by name: sums of a block of some tiles, and all products."""
    shape = work.layers[number]
    own = sizes.moving_bytes(shape.own_tiles)
    if number == 0 and work.own_are_features:
        own = reading_features_bytes(work.graph.feature_row_bytes, work.graph.feature_dim, sizes.part_rows)
    read = sizes.moving_bytes(shape.summed_tiles - tiles) + own
    scores = sizes.scoring_bytes(3 * shape.score_tiles) if shape.score_tiles else 0
    rows_bytes = sizes.part_bytes(tiles) + read + scores + sizes.moving_bytes(work.table_tiles(number + 1))
    reserved = _passing_memory(work, number, tiles, sizes.workers * rows_bytes, sizes)
    return {**reserved, "products": sizes.workers * sizes.computing_bytes(shape.widest)}


def first_rows_memory(work: StreamedWork, sizes: Sizes) -> dict[str, int]:
    """Return the memory of making the first table of features, by name."""
    graph, layer = work.graph, work.layers[0]
    multiplies = not layer.aggregates_first or layer.score_tiles > 0
    converting_bytes = _FEATURE_ARRAYS * sizes.product_rows * 4 * graph.feature_dim
    read = reading_features_bytes(graph.feature_row_bytes, graph.feature_dim, sizes.part_rows)
    return {
        "rows in flight": sizes.workers * (read + sizes.moving_bytes(work.table_tiles(0))),
        "products": sizes.workers * (sizes.computing_bytes(layer.widest) if multiplies else converting_bytes),
    }


def reading_outputs_bytes(num_tiles: int, part_rows: int, threads: int) -> int:
    """Return the memory of reading the outputs: each thread that writes predictions has readers of its own."""
    return (threads + 1) * moving_bytes(TILE_COLUMNS * num_tiles, part_rows)


def _passing_memory(work: StreamedWork, number: int, tiles: int, rows_bytes: int, sizes: Sizes) -> dict[str, int]:
    """Return the memory of a pass over the lists, with rows_bytes for rows while they stream."""
    score_tiles = work.layers[number].score_tiles
    content = band_bytes(work.block_rows(number) + 1, TILE_COLUMNS * (tiles + score_tiles))
    return {
        "column block": aligned_bytes(content),
        "neighbour lists": sizes.workers * sizes.listing_bytes(work.graph.index_bytes, work.graph.num_edges),
        # The block is filled before lists are streamed.
        "rows in flight": max(rows_bytes, sizes.moving_bytes(tiles + score_tiles)),
    }
