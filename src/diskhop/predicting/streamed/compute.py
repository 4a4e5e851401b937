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

from diskhop._native import BufferPool
from diskhop.budget import Budget
from diskhop.hops.stream.lists import indptr_parts
from diskhop.hops.stream.parts import BandReader, Bands, BandWriter, Rows
from diskhop.hops.tables import TILE_COLUMNS
from diskhop.nn.reproducible import torch_threads
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
from diskhop.runtime.blocks import map_in_order, row_ranges
from diskhop.runtime.progress import Progress

OpenFeatures = Callable[[int], FirstRows]
# (writer, first row, last row + 1, pool): writes rows of a table, with buffers of a pool.
WriteRows = Callable[[BandWriter, int, int, BufferPool], None]
# (first row, last row + 1, writers): writes a range.
WriteRange = Callable[[int, int, Sequence[BandWriter]], None]


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
    dropped: tables whose disk space may not be free yet.
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
    dropped: list[LayerTable] = field(default_factory=list)

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
            dropped = [tables[number] for tables in (self.sums, self.norms) if number in tables]
            if number not in self.kept:
                dropped.append(self.tables[number])
            for table in dropped:
                table.drop()
            self.dropped += dropped

    def _make_first(self) -> None:
        """Make table 0 of the features."""
        rows = self._rows_of(0, self.plan.threads_per_worker)

        def write(writer: BandWriter, start: int, stop: int, _: BufferPool) -> None:
            first = start
            for part in self.open_features(self.plan.part_rows).parts(start, stop):
                rows.make(first, writer.rows(len(part)), partial(self._prepared, torch.from_numpy(part)))
                writer.write(first, len(part))
                first += len(part)

        with self._step("read features", 0), torch.no_grad():
            self._write_shared(0, write, "reading features")

    def _prepared(self, features: Tensor, which: slice) -> Tensor:
        return self.network.prepare(features[which]).float()

    def _apart(self, number: int) -> None:
        """Write the sums of a layer, block after block, then make the next table of them."""
        planned, table = self.plan.layers[number], self.sums[number]
        with self._step(f"layer {number + 1}: sums", planned.num_blocks):
            self._write_missing_sums(number)
        with self._step(f"layer {number + 1}: products", 0):
            threads = self.plan.threads_per_worker
            rows = self._rows_of(number + 1, threads)

            def write(writer: BandWriter, start: int, stop: int, pool: BufferPool) -> None:
                reader = self._reader(table, 0, table.shape.num_tiles, pool)
                indptrs = indptr_parts(self.streaming.lists, start, stop, self.plan.part_rows)
                owns = self._own_rows(number, start, stop, pool)
                for (first, indptr), sums, own in zip(indptrs, reader.parts(start, stop), owns, strict=False):
                    hidden = self._after(number, first, indptr, sums, own, threads)
                    rows.make(first, writer.rows(len(sums[0])), hidden)
                    writer.write(first, len(sums[0]))

            self._write_shared(number + 1, write, f"layer {number + 1}: products")

    def _write_missing_sums(self, number: int) -> None:
        table, streaming, num_nodes = self.sums[number], self.streaming, self.tables[number].shape.num_rows
        memory, pool = self._block_memory(number), self._pool()
        for band in table.missing_bands():
            summer = self._summer(number, band, memory)

            def write(writer: BandWriter, band: int = band, summer: Summer = summer) -> None:
                for part in sum_parts(summer, streaming, 0, num_nodes, lambda num_rows: writer.rows(num_rows)[0]):
                    writer.write(part.first_row, len(part.sums))
                    done = band * num_nodes + part.first_row + len(part.sums)
                    self.progress(f"layer {number + 1}: sums", done, table.shape.num_tiles * num_nodes)

            self._write_band(table, band, pool, write)

    def _fused(self, number: int) -> None:
        """Make the next table while the layer's sums are in memory."""
        with self._step(f"layer {number + 1}", 1):
            pool = self._pool()
            summer = self._summer(number, 0, self._block_memory(number))
            threads = self.streaming.threads
            rows = self._rows_of(number + 1, threads)
            most_rows = min(self.streaming.part_rows * self.streaming.parts_at_once, self.tables[number].shape.num_rows)
            memory = np.empty((most_rows, summer.width), np.float32)

            def write(start: int, stop: int, writers: Sequence[BandWriter]) -> None:
                (writer,) = writers
                owns = self._own_rows(number, start, stop, pool)
                for parts in sum_parts(summer, self.streaming, start, stop, lambda num_rows: memory[:num_rows]):
                    for (begin, end), own in zip(row_ranges(len(parts.sums), self.plan.part_rows), owns, strict=False):
                        first, indptr = parts.first_row + begin, parts.indptr[begin : end + 1]
                        hidden = self._after(number, first, indptr, [parts.sums[begin:end]], own, threads)
                        rows.make(first, writer.rows(end - begin), hidden)
                        writer.write(first, end - begin)

            self._write_ranges(number + 1, write, f"layer {number + 1}", 1, pool)

    def _write_norms(self, number: int) -> None:
        """Write the norms of a layer with attention."""
        layer, streaming = self.network.layers[number], self.streaming
        if not isinstance(layer, AttentionLayer) or self.norms[number].is_complete:
            return
        table = self.norms[number]
        scores = self._score_band(number, SOURCE_SCORES)
        num_nodes = table.shape.num_rows
        with self._step(f"layer {number + 1}: attention", 1):
            memory = BlockMemory(num_nodes, scores.width)
            block = Block(memory, num_nodes, scores.width)
            load_scores(block, memory, scores, streaming)

            def write(writer: BandWriter) -> None:
                targets = TargetRows(self._score_band(number, TARGET_SCORES), streaming, num_nodes)
                norms = AttentionNorms(layer, block, targets, streaming)

                def memory_of(num_rows: int) -> Rows:
                    return writer.rows(num_rows)[0][:, : norms.width]

                for part in sum_parts(norms, streaming, 0, num_nodes, memory_of):
                    writer.write(part.first_row, len(part.sums))

            self._write_band(table, 0, self._pool(), write)
            table.settle()

    def _write_band(self, table: LayerTable, band: int, pool: BufferPool, write: Callable[[BandWriter], None]) -> None:
        part_rows, engine = self.streaming.part_rows, self.streaming.engine
        num_rows = part_rows * self.streaming.parts_at_once
        self._make_room(table)
        table.write_band(
            band,
            lambda bands: [BandWriter(bands, part_rows, num_rows, engine, pool)],
            lambda writers: write(writers[0]),
        )

    def _make_room(self, table: LayerTable) -> None:
        """Wait until earlier tables are gone if the disk lacks the space of one."""
        if self.dropped and not table.has_room:
            for earlier in self.dropped:
                earlier.settle()
            self.dropped.clear()

    def _pool(self) -> BufferPool:
        """Return a pool for the buffers of a step, which takes memory from the system once."""
        return BufferPool(self.plan.memory_bytes)

    def _block_memory(self, number: int) -> BlockMemory:
        """Allocate the memory of blocks of a layer, with scores if it has any."""
        planned, is_scored = self.plan.layers[number], isinstance(self.network.layers[number], AttentionLayer)
        score_columns = self._score_band(number, SOURCE_SCORES).width if is_scored else 0
        return BlockMemory(planned.block_rows, TILE_COLUMNS * planned.block_tiles + score_columns)

    def _summer(self, number: int, number_of_band: int, memory: BlockMemory) -> Summer:
        """Load a summed band as a block, and return what sums it."""
        planned, layer, streaming = self.plan.layers[number], self.network.layers[number], self.streaming
        band = self.tables[number].bands(number_of_band, number_of_band + 1)
        if not isinstance(layer, AttentionLayer):
            block = Block(memory, planned.block_rows, band.width)
            block.fill(band, streaming)
            if layer.weighing == "symmetric":
                block.scale(streaming)
            return NeighborSums(block, streaming, layer.weighing == "symmetric")
        scores, norms = self._score_band(number, SOURCE_SCORES), self.norms[number]
        block = Block(memory, planned.block_rows, scores.width + band.width)
        load_scores(block, memory, scores, streaming)
        block.fill(band, streaming, scores.width)
        num_nodes, first_tile = norms.shape.num_rows, number_of_band * planned.block_tiles
        return AttentionSums(
            layer,
            block,
            attended_heads(layer, first_tile, first_tile + band.width // TILE_COLUMNS, scores.width),
            scores.width,
            TargetRows(self._score_band(number, TARGET_SCORES), streaming, num_nodes),
            TargetRows(norms.bands(0, 1), streaming, num_nodes),
            streaming,
        )

    def _score_band(self, number: int, name: str) -> Bands:
        return self.tables[number].bands(*self.network.layouts[number].bands([name]))

    def _after(
        self,
        number: int,
        first_row: int,
        indptr: NDArray[np.int64],
        sums: Sequence[Rows],
        own: Sequence[Rows],
        threads: int,
    ) -> Callable[[slice], Tensor]:
        """Return the function that computes a layer's output for a slice of a part."""
        layer, layout = self.network.layers[number], self.network.layouts[number]
        first_own = layout.bands(layer.own)[0] if layer.own else 0
        summed = layout.columns(sums, layer.summed, threads)
        own_groups = {name: layout.columns(own, [name], threads, first_own) for name in layer.own}
        degrees = degrees_of(indptr)
        if layer.weighing != "mean":
            degrees = self.streaming.proper_degrees(first_row, indptr)

        def hidden(which: slice) -> Tensor:
            return layer.after(
                summed.of(which), {name: group.of(which) for name, group in own_groups.items()}, degrees[which]
            )

        return hidden

    def _own_rows(self, number: int, start: int, stop: int, pool: BufferPool) -> Iterator[list[Rows]]:
        """Yield the parts of the groups that a layer reads again; without any, empty ones."""
        layer, layout = self.network.layers[number], self.network.layouts[number]
        if layer.own:
            yield from self._reader(self.tables[number], *layout.bands(layer.own), pool).parts(start, stop)
        else:
            for _ in range(start, stop, self.plan.part_rows):
                yield []

    def _reader(self, table: LayerTable, first: int, end: int, pool: BufferPool) -> BandReader:
        return BandReader(table.bands(first, end), self.plan.part_rows, self.streaming.engine, pool)

    def _rows_of(self, number: int, threads: int) -> RowsOfTable:
        layers = self.network.layers
        layer = layers[number] if number < len(layers) else None
        return RowsOfTable(
            self.network.layouts[number],
            layer,
            self.plan.product_rows,
            lambda rows: self.bad_rows(number, rows),
            threads,
        )

    def _write_shared(self, number: int, write: WriteRows, stage: str) -> None:
        """Write the missing rows of a table, each range by several workers with cores of their own."""
        plan, pool = self.plan, self._pool()

        def share(start: int, stop: int, writers: Sequence[BandWriter]) -> None:
            part_rows = -(-(stop - start) // (len(writers) * plan.part_rows)) * plan.part_rows

            def write_rows(share: tuple[BandWriter, tuple[int, int]]) -> None:
                writer, (first, last) = share
                with torch.no_grad():  # of this thread
                    write(writer, start + first, start + last, pool)

            # It waits for running workers before it raises: the writers are closed then.
            for _ in map_in_order(
                write_rows, zip(writers, row_ranges(stop - start, part_rows), strict=False), len(writers)
            ):
                pass

        with torch_threads(plan.threads_per_worker):
            self._write_ranges(number, share, stage, plan.workers, pool)

    def _write_ranges(self, number: int, write: WriteRange, stage: str, num_writers: int, pool: BufferPool) -> None:
        table, part_rows, engine = self.tables[number], self.plan.part_rows, self.streaming.engine
        self._make_room(table)

        def open_writers(bands: Bands) -> list[BandWriter]:
            return [BandWriter(bands, part_rows, part_rows, engine, pool) for _ in range(num_writers)]

        for start, stop in table.missing_ranges():
            table.write_rows(start, stop, open_writers, partial(write, start, stop))
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
