"""Computes a built-in network over all nodes, table after table, within a plan.

Table 0 is made of the features; table i of the output of layer i. Each has the columns that the next layer reads. A
table is removed once the next one is complete, unless its rows are wanted. Every table resumes after a crash: bytes
depend neither on memory nor on threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from diskhop.hops.stream.parts import BandReader, Bands, Rows
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
    PartSums,
    Streaming,
    Summer,
    degrees_of,
    sum_parts,
)
from diskhop.predicting.streamed.row_step import FeatureRows, HiddenRows, LayerRows, RowsOfTable
from diskhop.predicting.streamed.source import FirstRows
from diskhop.predicting.streamed.table_work import TableWork
from diskhop.predicting.streamed.tables import LayerTable
from diskhop.predicting.streamed.workers import Share

OpenFeatures = Callable[[int], FirstRows]
# What sums a worker's parts.
SummerOf = Callable[[Share], Summer]


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
    work: writes the tables, by the same plan.
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
    work: TableWork
    _first_memory: BlockMemory | None = field(init=False, default=None)

    def run(self) -> None:
        """Compute what is missing."""
        last = len(self.network.layers)
        first = next((number for number in range(last, -1, -1) if self.tables[number].is_complete), -1)
        if first < 0:
            self._make_first()
            first = 0
        for number in range(first):  # left by an interrupted run
            self._drop(number)
        for number in range(first, last):
            with torch.no_grad():
                self._write_norms(number)
                self._write_sums(number)
                self._make_next(number)
            self._drop(number)
        kept = (self.tables[number] for number in self.kept)
        self.work.spares.clear({table.path: table.shape.num_bytes for table in kept})

    def _drop(self, number: int) -> None:
        """Leave the disk space of what a layer has read to the next tables."""
        self.tables[number + 1].settle()
        tables = [each[number] for each in (self.sums, self.norms) if number in each]
        if number not in self.kept:
            tables.append(self.tables[number])
        for table in tables:
            self.work.drop(table)

    def _make_first(self) -> None:
        """Make table 0 of the features."""
        rows = self._rows_of(0)
        block = self._first_block()

        def write(share: Share) -> None:
            parts = self.open_features(self.plan.part_rows).parts(share.firsts, share.stop)
            for first, part in zip(share.firsts, parts, strict=True):
                out = share.rows(len(part))
                rows.make(first, out, FeatureRows(self.network.prepare, torch.from_numpy(part)))
                if block is not None:
                    into = block.rows[first : first + len(part)]
                    into[:] = out[0][: len(into)]
                share.write(first, len(part))

        with self.work.step("read features", 0), torch.no_grad():
            self.work.write_table(self.tables[0], "reading features", write)

    def _first_block(self) -> Block | None:
        """Return the first block, to be filled with the rows of table 0; None if it is to be read."""
        table, planned = self.tables[0], self.plan.layers[0]
        *others, last = planned.blocks
        if not self.plan.fills_first_block or table.file_bytes or (others and self.sums[0].file_bytes):
            return None
        memory = self._first_memory = self._block_memory(0, max(others, default=last))
        memory.filled = table.bands(0, 1)
        block = Block(memory, planned.block_rows, memory.filled.width)
        block.all_rows[-1] = 0
        return block

    def _write_norms(self, number: int) -> None:
        """Write the norms of a layer with attention."""
        layer = self.network.layers[number]
        if not isinstance(layer, AttentionLayer) or self.norms[number].is_complete:
            return
        table = self.norms[number]
        with self.work.step(f"layer {number + 1}: attention", 1):
            scores = self._score_band(number, SOURCE_SCORES)
            memory = self._block_memory(number, 0)
            block = Block(memory, table.shape.num_rows, scores.width)
            streaming = self._summing
            load_scores(block, memory, scores, streaming)

            def write(share: Share) -> None:
                targets = TargetRows(self._score_band(number, TARGET_SCORES), streaming, share.firsts, share.stop)
                norms = AttentionNorms(layer, block, targets, streaming)

                def memory_of(num_rows: int) -> Rows:
                    return share.rows(num_rows)[0][:, : norms.width]

                for part in sum_parts(norms, streaming, share.firsts, share.stop, memory_of, share.pool):
                    share.write(part.first_row, len(part.sums))

            self.work.write_band(table, 0, f"layer {number + 1}: attention", write)
            table.settle()

    def _write_sums(self, number: int) -> None:
        """Write the sums of all blocks of a layer but the last."""
        *others, _ = self.plan.layers[number].blocks
        if not others:
            return
        table, name = self.sums[number], f"layer {number + 1}: first sums"
        with self.work.step(name, len(others)):
            memory, streaming = self._block_memory(number, max(others)), self._summing
            for band in table.missing_bands():
                summer_of = self._summers(number, band, memory, streaming)

                def write(share: Share, summer_of: SummerOf = summer_of) -> None:
                    def memory_of(num_rows: int) -> Rows:
                        return share.rows(num_rows)[0]

                    summer, firsts, stop = summer_of(share), share.firsts, share.stop
                    for part in sum_parts(summer, streaming, firsts, stop, memory_of, share.pool):
                        share.write(part.first_row, len(part.sums))

                self.work.write_band(table, band, name, write, has_padding=False)

    def _make_next(self, number: int) -> None:
        """Sum the last block of a layer, and make the next table of all sums."""
        planned = self.plan.layers[number]
        name, tiles = f"layer {number + 1}", planned.blocks[-1]
        with self.work.step(name, 1):
            memory = self._block_memory(number, tiles)
            summer_of = self._summers(number, planned.num_blocks - 1, memory, self.streaming)
            rows = self._rows_of(number + 1)

            def write(share: Share) -> None:
                out = np.empty((min(self.plan.part_rows, share.stop), TILE_COLUMNS * tiles), np.float32)
                summer, firsts, stop = summer_of(share), share.firsts, share.stop
                parts = sum_parts(summer, self.streaming, firsts, stop, lambda rows: out[:rows], share.pool)
                earlier, owns = self._earlier_sums(number, share), self._own_rows(number, share)
                for part, sums, own in zip(parts, earlier, owns, strict=False):
                    hidden = self._hidden(number, part, [*sums, part.sums], own)
                    rows.make(part.first_row, share.rows(len(part.sums)), hidden)
                    share.write(part.first_row, len(part.sums))

            self.work.write_table(self.tables[number + 1], name, write)

    def _block_memory(self, number: int, tiles: int) -> BlockMemory:
        """Allocate the memory of blocks of a layer, of some tiles, with scores if it has any.

        The first one may have been filled already.
        """
        filled, self._first_memory = self._first_memory, None
        if filled is not None:
            return filled
        is_scored = isinstance(self.network.layers[number], AttentionLayer)
        score_columns = self._score_band(number, SOURCE_SCORES).width if is_scored else 0
        return BlockMemory(self.plan.layers[number].block_rows, TILE_COLUMNS * tiles + score_columns)

    @property
    def _summing(self) -> Streaming:
        """Return the streaming of passes that write sums, in larger parts."""
        return replace(self.streaming, part_rows=self.plan.summed_rows)

    def _summers(self, number: int, number_of_band: int, memory: BlockMemory, streaming: Streaming) -> SummerOf:
        """Load a summed band as a block; return the function that makes what sums it for a worker."""
        planned, layer = self.plan.layers[number], self.network.layers[number]
        band = self.tables[number].bands(number_of_band, number_of_band + 1)
        if not isinstance(layer, AttentionLayer):
            block = Block(memory, planned.block_rows, band.width)
            if memory.filled != band:
                block.fill(band, streaming)
            memory.filled = None
            if layer.weighing == "symmetric":
                block.scale(streaming)
            return lambda _: NeighborSums(block, streaming, layer.weighing == "symmetric")
        scores, targets = self._score_band(number, SOURCE_SCORES), self._score_band(number, TARGET_SCORES)
        block = Block(memory, planned.block_rows, scores.width + band.width)
        load_scores(block, memory, scores, streaming)
        block.fill(band, streaming, scores.width)
        first_tile = sum(planned.blocks[:number_of_band])
        heads = attended_heads(layer, first_tile, first_tile + planned.blocks[number_of_band], scores.width)
        norms = self.norms[number].bands(0, 1)
        return lambda share: AttentionSums(
            layer,
            block,
            heads,
            scores.width,
            TargetRows(targets, streaming, share.firsts, share.stop),
            TargetRows(norms, streaming, share.firsts, share.stop),
            streaming,
        )

    def _score_band(self, number: int, name: str) -> Bands:
        return self.tables[number].bands(*self.network.layouts[number].bands([name]))

    def _hidden(self, number: int, part: PartSums, sums: Sequence[Rows], own: Sequence[Rows]) -> HiddenRows:
        """Return a layer's output for the rows of a part."""
        layer, layout, threads = self.network.layers[number], self.network.layouts[number], self.streaming.threads
        first_own = layout.bands(layer.own)[0] if layer.own else 0
        own_groups = {name: layout.columns(own, [name], threads, first_own) for name in layer.own}
        if layer.weighing == "mean":
            degrees = degrees_of(part.indptr)
        else:
            degrees = self.streaming.proper_degrees(part.first_row, part.indptr)
        return LayerRows(layer, layout.columns(sums, layer.summed, threads), own_groups, degrees)

    def _earlier_sums(self, number: int, share: Share) -> Iterator[list[Rows]]:
        """Yield the parts of the sums that are written."""
        table = self.sums.get(number)
        return self._parts(None if table is None else table.bands(0, table.shape.num_tiles), share)

    def _own_rows(self, number: int, share: Share) -> Iterator[list[Rows]]:
        """Yield the parts of the groups that a layer reads again."""
        own, layout = self.network.layers[number].own, self.network.layouts[number]
        return self._parts(self.tables[number].bands(*layout.bands(own)) if own else None, share)

    def _parts(self, bands: Bands | None, share: Share) -> Iterator[list[Rows]]:
        """Yield a worker's parts of some bands; without bands, empty ones."""
        if bands is None:
            return ([] for _ in share.firsts)
        reader = BandReader(bands, self.plan.part_rows, self.streaming.engine, share.pool)
        return reader.parts(share.firsts, share.stop)

    def _rows_of(self, number: int) -> RowsOfTable:
        layers = self.network.layers
        layer = layers[number] if number < len(layers) else None
        return RowsOfTable(
            self.network.layouts[number],
            None if layer is None else layer.put_before,
            self.plan.product_rows,
            lambda rows: self.bad_rows(number, rows),
            self.streaming.threads,
        )
