"""Computes a built-in network over all nodes, table after table, within a plan.

Table 0 is made of the features; table i of the output of layer i. Each has the columns that the next layer reads. A
table is removed once the next one is complete, unless its rows are wanted. Every table resumes after a crash: bytes
depend neither on memory nor on threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diskhop.budget import Budget
from diskhop.hops.stream.lists import indptr_parts
from diskhop.hops.stream.parts import Columns, Rows, TileReader, TileWriter
from diskhop.hops.tables import TILE_COLUMNS
from diskhop.planning.predict import StreamedPlan
from diskhop.predicting.streamed.attention_passes import (
    AttentionNorms,
    AttentionSums,
    TargetRows,
    attended_heads,
    load_scores,
)
from diskhop.predicting.streamed.layers import SOURCE_SCORES, TARGET_SCORES, AttentionLayer, StreamedLayer
from diskhop.predicting.streamed.layout import Layout
from diskhop.predicting.streamed.passes import (
    Block,
    BlockMemory,
    NeighborSums,
    Streaming,
    Summer,
    degrees_of,
    sum_parts,
)
from diskhop.predicting.streamed.row_step import RowsOfTable
from diskhop.predicting.streamed.source import FirstRows
from diskhop.predicting.streamed.tables import LayerTable
from diskhop.runtime.progress import Progress

OpenFeatures = Callable[[int], FirstRows]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamedNetwork:
    """Layers to compute, and the layouts of their tables.

    layers: the layers, in order.
    layouts: layout of every table, the outputs' last.
    prepare: maps rows of features to the first layer's input.
    """

    layers: Sequence[StreamedLayer]
    layouts: Sequence[Layout]
    prepare: Callable[[Tensor], Tensor]


@dataclass(slots=True, eq=False, kw_only=True)
class Computation:
    """Computes the tables of a network.

    network: see above.
    plan: blocks and sizes.
    tables: every table, the outputs' last. sums, norms: sums of each layer where they are written, and norms
        of its attention, if it has any.
    kept: numbers of the tables that stay.
    streaming: what all passes share.
    open_features: opens the features for parts of some rows.
    bad_rows: returns the error for a table's rows that are not finite.
    budget, progress: as usual.
    steps: name, seconds and passes over the lists of each finished step, as in result.json.
    """

    network: StreamedNetwork
    plan: StreamedPlan
    tables: Sequence[LayerTable]
    sums: Mapping[int, LayerTable]
    norms: Mapping[int, LayerTable]
    kept: frozenset[int]
    streaming: Streaming
    open_features: OpenFeatures
    bad_rows: Callable[[int, Sequence[int]], Exception]
    budget: Budget
    progress: Progress
    steps: list[dict[str, Any]] = field(default_factory=list)

    def run(self) -> None:
        """Compute what is missing."""
        last = len(self.network.layers)
        first = next((number for number in range(last, -1, -1) if self.tables[number].is_complete), -1)
        if first < 0:
            self._make_first()
            first = 0
        for number in range(first, last):
            layer = self.plan.layers[number]
            make = self._fused if layer.is_fused else self._apart
            with torch.no_grad():
                self._write_norms(number)
                make(number)
            self.tables[number + 1].settle()
            if number not in self.kept:
                self.tables[number].drop()
            for tables in (self.sums, self.norms):
                if number in tables:
                    tables[number].drop()

    def _make_first(self) -> None:
        """Make table 0 of the features."""
        rows = self._rows_of(0)
        reader = self.open_features(self.plan.part_rows)

        def write(writer: TileWriter, start: int, stop: int) -> None:
            first = start
            for part in reader.parts(start, stop):
                writer.write(first, rows.make(first, len(part), partial(self._prepared, torch.from_numpy(part))))
                first += len(part)

        with self._step("read features", 0), torch.no_grad():
            self._write_ranges(0, write, "reading features")

    def _prepared(self, features: Tensor, which: slice) -> Tensor:
        return self.network.prepare(features[which]).float()

    def _apart(self, number: int) -> None:
        """Write the sums of a layer, block after block, then make the next table of them."""
        planned, table = self.plan.layers[number], self.sums[number]
        with self._step(f"layer {number + 1}: sums", planned.num_blocks):
            self._write_missing_sums(number)
        with self._step(f"layer {number + 1}: products", 0):
            reader = self._reader(table, 0, table.shape.num_tiles)
            rows = self._rows_of(number + 1)

            def write(writer: TileWriter, start: int, stop: int) -> None:
                lists = self.streaming.lists
                indptrs = indptr_parts(lists, start, stop, self.plan.part_rows)
                owns = self._own_rows(number, start, stop)
                for (first, indptr), sums, own in zip(indptrs, reader.parts(start, stop), owns, strict=False):
                    hidden = self._after(number, first, indptr, sums, own)
                    writer.write(first, rows.make(first, len(sums), hidden))

            self._write_ranges(number + 1, write, f"layer {number + 1}: products")

    def _write_missing_sums(self, number: int) -> None:
        block_tiles = self.plan.layers[number].block_tiles
        memory = self._block_memory(number, block_tiles)
        for first, end in _runs(self.sums[number].missing_tiles(), block_tiles):
            self._write_sums(number, first, end, memory)

    def _write_sums(self, number: int, first: int, end: int, memory: BlockMemory) -> None:
        table, streaming, num_nodes = self.sums[number], self.streaming, self.tables[number].shape.num_rows
        summer = self._summer(number, first, end, memory)

        def write(writer: TileWriter) -> None:
            for part in sum_parts(summer, streaming, 0, num_nodes):
                writer.write(part.first_row, part.sums)
                done = first * num_nodes + (end - first) * (part.first_row + len(part.sums))
                self.progress(f"layer {number + 1}: sums", done, table.shape.num_tiles * num_nodes)

        table.write_tiles(first, end, self.plan.part_rows, streaming.engine, streaming.threads, write)

    def _fused(self, number: int) -> None:
        """Make the next table while the layer's sums are in memory."""
        with self._step(f"layer {number + 1}", 1):
            _, end = self.network.layouts[number].tiles(self.network.layers[number].summed)
            summer = self._summer(number, 0, end, self._block_memory(number, end))
            rows = self._rows_of(number + 1)

            def write(writer: TileWriter, start: int, stop: int) -> None:
                owns = self._own_rows(number, start, stop)
                for part, own in zip(sum_parts(summer, self.streaming, start, stop), owns, strict=False):
                    hidden = self._after(number, part.first_row, part.indptr, part.sums, own)
                    writer.write(part.first_row, rows.make(part.first_row, len(part.sums), hidden))

            self._write_ranges(number + 1, write, f"layer {number + 1}")

    def _write_norms(self, number: int) -> None:
        """Write the norms of a layer with attention."""
        layer, streaming = self.network.layers[number], self.streaming
        if not isinstance(layer, AttentionLayer) or self.norms[number].is_complete:
            return
        table = self.norms[number]
        scores = self._score_columns(number, SOURCE_SCORES)
        num_nodes = table.shape.num_rows
        with self._step(f"layer {number + 1}: attention", 1):
            memory = BlockMemory(num_nodes, scores.width)
            block = Block(memory, num_nodes, scores.width)
            load_scores(block, memory, scores, streaming)

            def write(writer: TileWriter) -> None:
                targets = TargetRows(self._score_columns(number, TARGET_SCORES), streaming, num_nodes)
                for part in sum_parts(AttentionNorms(layer, block, targets, streaming), streaming, 0, num_nodes):
                    writer.write(part.first_row, part.sums)

            end = table.shape.num_tiles
            table.write_tiles(0, end, self.plan.part_rows, streaming.engine, streaming.threads, write)
            table.settle()

    def _block_memory(self, number: int, num_tiles: int) -> BlockMemory:
        """Allocate the memory of blocks of some summed tiles, with scores if the layer has any."""
        is_scored = isinstance(self.network.layers[number], AttentionLayer)
        score_columns = self._score_columns(number, SOURCE_SCORES).width if is_scored else 0
        return BlockMemory(self.plan.layers[number].block_rows, TILE_COLUMNS * num_tiles + score_columns)

    def _summer(self, number: int, first: int, end: int, memory: BlockMemory) -> Summer:
        """Load the block of some summed tiles, and return what sums them."""
        planned, layer, streaming = self.plan.layers[number], self.network.layers[number], self.streaming
        columns, width = self.tables[number].columns(first, end), TILE_COLUMNS * (end - first)
        if not isinstance(layer, AttentionLayer):
            block = Block(memory, planned.block_rows, width)
            block.fill(columns, streaming)
            if layer.weighing == "symmetric":
                block.scale(streaming)
            return NeighborSums(block, streaming, layer.weighing == "symmetric")
        scores, norms = self._score_columns(number, SOURCE_SCORES), self.norms[number]
        block = Block(memory, planned.block_rows, scores.width + width)
        load_scores(block, memory, scores, streaming)
        block.fill(columns, streaming, scores.width)
        num_nodes = norms.shape.num_rows
        return AttentionSums(
            layer,
            block,
            attended_heads(layer, first, end, scores.width),
            scores.width,
            TargetRows(self._score_columns(number, TARGET_SCORES), streaming, num_nodes),
            TargetRows(norms.columns(0, norms.shape.num_tiles), streaming, num_nodes),
            streaming,
        )

    def _score_columns(self, number: int, name: str) -> Columns:
        return self.tables[number].columns(*self.network.layouts[number].tiles([name]))

    def _after(
        self, number: int, first_row: int, indptr: NDArray[np.int64], sums: Rows, own: Rows
    ) -> Callable[[slice], Tensor]:
        """Return the function that computes a layer's output for a slice of a part."""
        layer, layout = self.network.layers[number], self.network.layouts[number]
        first_own = layout.tiles(layer.own)[0] if layer.own else 0
        degrees = degrees_of(indptr)
        if layer.weighing != "mean":
            degrees = self.streaming.proper_degrees(first_row, indptr)

        def hidden(which: slice) -> Tensor:
            summed = layout.join(sums[which], layer.summed, 0)
            return layer.after(summed, layout.unpack(own[which], layer.own, first_own), degrees[which])

        return hidden

    def _own_rows(self, number: int, start: int, stop: int) -> Iterator[Rows]:
        """Yield the parts of the groups that a layer reads again; without any, empty ones."""
        layer, layout = self.network.layers[number], self.network.layouts[number]
        if layer.own:
            yield from self._reader(self.tables[number], *layout.tiles(layer.own)).parts(start, stop)
        else:
            for _ in range(start, stop, self.plan.part_rows):
                yield np.empty((0, 0), np.float32)

    def _reader(self, table: LayerTable, first: int, end: int) -> TileReader:
        streaming = self.streaming
        return TileReader(table.columns(first, end), self.plan.part_rows, streaming.engine, streaming.threads)

    def _rows_of(self, number: int) -> RowsOfTable:
        layers = self.network.layers
        layer = layers[number] if number < len(layers) else None
        return RowsOfTable(
            self.network.layouts[number], layer, self.plan.product_rows, lambda rows: self.bad_rows(number, rows)
        )

    def _write_ranges(self, number: int, write: Callable[[TileWriter, int, int], None], stage: str) -> None:
        table, streaming = self.tables[number], self.streaming
        for start, stop in table.missing_ranges():
            table.write_rows(
                start,
                stop,
                self.plan.part_rows,
                streaming.engine,
                streaming.threads,
                lambda writer, start=start, stop=stop: write(writer, start, stop),  # type: ignore[misc]
            )
            self.progress(stage, stop, table.shape.num_rows)

    @contextmanager
    def _step(self, name: str, num_passes: int) -> Iterator[None]:
        """Reserve the plan's memory, and note how long a step took."""
        started = time.perf_counter()
        with ExitStack() as stack:
            for what, num_bytes in self.plan.reserved.items():
                stack.enter_context(self.budget.reserve(what, num_bytes))
            yield
        self.steps.append({"step": name, "seconds": time.perf_counter() - started, "passes": num_passes})


def _runs(tiles: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield (first, end) of runs of at most `most` adjacent tiles."""
    start = 0
    for place in range(1, len(tiles) + 1):
        if place == len(tiles) or tiles[place] != tiles[place - 1] + 1 or place - start == most:
            yield tiles[start], tiles[place - 1] + 1
            start = place
