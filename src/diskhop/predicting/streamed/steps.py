"""The steps that compute a built-in network over all nodes: what each loads, and how it writes rows.

Table 0 is made of the features; table i of the output of layer i. Each has the columns that the next layer reads. Bytes
depend neither on memory nor on threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from diskhop._native import Engine
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
from diskhop.predicting.streamed.layers import HIDDEN, SOURCE_SCORES, TARGET_SCORES, AttentionLayer, StreamedLayer
from diskhop.predicting.streamed.layout import Layout
from diskhop.predicting.streamed.passes import (
    Block,
    BlockMemory,
    NeighborSums,
    PartSums,
    Streaming,
    Summer,
    all_rows,
    degrees_of,
    sum_parts,
    to_be_stored,
    with_edges,
)
from diskhop.predicting.streamed.row_step import FeatureRows, HiddenRows, LayerRows, RowsOfTable
from diskhop.predicting.streamed.rows_job import Output
from diskhop.predicting.streamed.source import FirstRows
from diskhop.predicting.streamed.split_columns import SplitColumns
from diskhop.predicting.streamed.tables import LayerTable
from diskhop.predicting.streamed.workers import Share, WriteRows
from diskhop.runtime.jobs import Share as JobShare

OpenFeatures = Callable[[int], FirstRows]
# What sums a worker's parts.
SummerOf = Callable[[Share], Summer]


@dataclass(frozen=True, slots=True)
class Step:
    """A step.

    kind: features makes table 0; norms are those of a layer's attention; sums are those of one of its blocks; layer
        sums the last block, and makes the next table of all sums.
    number: number of the layer, from 0.
    band: number of the block that is summed.
    """

    kind: Literal["features", "norms", "sums", "layer"]
    number: int = 0
    band: int = 0


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
class StreamedSteps:
    """The steps of a network (see Steps).

    network: see above.
    plan: blocks and sizes.
    tables: every table, the outputs' last. sums, norms: sums of each layer where they are written, and norms
        of its attention, if it has any.
    streaming: what all passes share.
    open_features: opens the features for parts of some rows.
    bad_rows: returns the error for a table's rows that are not finite.
    copy: what a worker process opens the same steps by (see jobs.py).
    """

    network: StreamedNetwork
    plan: StreamedPlan
    tables: Sequence[LayerTable]
    sums: Mapping[int, LayerTable]
    norms: Mapping[int, LayerTable]
    streaming: Streaming
    open_features: OpenFeatures
    bad_rows: Callable[[int, Sequence[int]], Exception]
    copy: Callable[[JobShare], partial[StreamedSteps]]
    # Memory of a layer's blocks, for the next one.
    _memory: tuple[str, int, BlockMemory] | None = field(init=False, default=None)

    @property
    def engine(self) -> Engine:
        """See Steps."""
        return self.streaming.engine

    def for_workers(self, share: JobShare) -> partial[StreamedSteps]:
        """See jobs.py."""
        return self.copy(share)

    def output(self, step: Step) -> Output:
        """See Steps."""
        part_rows, summed_rows, number = self.plan.part_rows, self.plan.summed_rows, step.number
        if step.kind == "norms":
            return Output(table=self.norms[number], first_band=0, end_band=1, part_rows=summed_rows)
        if step.kind == "sums":
            bands = {"first_band": step.band, "end_band": step.band + 1}
            return Output(table=self.sums[number], **bands, part_rows=summed_rows, has_padding=False)
        table = self.tables[0 if step.kind == "features" else number + 1]
        return Output(table=table, first_band=0, end_band=table.shape.num_tiles, part_rows=part_rows)

    def open(self, step: Step) -> WriteRows:
        """See Steps."""
        if step.kind == "features":
            return partial(self._write_first, self._rows_of(0), self._first_block())
        if step.kind == "norms":
            return self._norms(step.number)
        if step.kind == "sums":
            streaming = self._summing
            memory = self._block_memory(step, max(self.plan.layers[step.number].blocks[:-1]))
            summer_of = self._summers(step.number, step.band, memory, streaming)
            return partial(self._write_sums, step.number, summer_of, streaming)
        planned = self.plan.layers[step.number]
        memory = self._block_memory(step, planned.blocks[-1])
        summer_of = self._summers(step.number, planned.num_blocks - 1, memory, self.streaming)
        return partial(self._write_next, step.number, summer_of, self._rows_of(step.number + 1))

    def release(self, step: Step) -> None:
        """Free the memory of a step, unless it is that of another one."""
        if self._memory is not None and self._memory[:2] == (step.kind, step.number):
            self._memory = None

    def _write_first(self, rows: RowsOfTable, block: Block | None, share: Share) -> None:
        """Make rows of table 0 of the features."""
        parts = self.open_features(self.plan.part_rows).parts(share.firsts, share.stop)
        width = 0 if self.plan.stores_first_block else TILE_COLUMNS * self.plan.layers[0].blocks[0]
        first_band = np.empty((self.plan.part_rows, width), np.float32)
        for first, part in zip(share.firsts, parts, strict=True):
            out = share.rows(len(part))
            if width > 0:
                out.insert(0, first_band[: len(part)])
            rows.make(first, out, FeatureRows(self.network.prepare, torch.from_numpy(part)))
            if block is not None:
                into = block.rows[first : first + len(part)]
                into[:] = out[0][: len(into)]
            share.write(first, len(part))

    def _first_block(self) -> Block | None:
        """Return the first block, to be filled with the rows of table 0; None if it is to be filled later."""
        table, planned = self.tables[0], self.plan.layers[0]
        *others, last = planned.blocks
        if not self.plan.fills_first_block or table.file_bytes or (others and self.sums[0].file_bytes):
            return None
        user = Step("sums" if others else "layer")
        memory = self._block_memory(user, max(others, default=last))
        memory.has_first = True
        block = Block(memory, planned.block_rows, TILE_COLUMNS * planned.blocks[0])
        block.all_rows[-1] = 0
        return block

    def _fill_block(self, block: Block, memory: BlockMemory, number: int, band: int) -> None:
        """Read a block from its table; make the first one of the features if no table has it."""
        has_block, memory.has_first = memory.has_first and number == band == 0, False
        if has_block:
            return
        stored = band - (number == 0 and not self.plan.stores_first_block)
        if stored >= 0:
            block.fill(self.tables[number].bands(stored, stored + 1), self.streaming)
            return
        part_rows, (num_rows, width) = self.plan.part_rows, block.rows.shape
        firsts = range(0, num_rows, part_rows)
        for first, part in zip(firsts, self.open_features(part_rows).parts(firsts, num_rows), strict=True):
            block.rows[first : first + len(part)] = part[:, :width]
        block.all_rows[-1] = 0

    def _norms(self, number: int) -> WriteRows:
        """Load the scores of a layer with attention; return the function that writes norms."""
        layer, streaming = self.network.layers[number], self._summing
        assert isinstance(layer, AttentionLayer), "the others have no norms"
        scores = self._score_band(number, SOURCE_SCORES)
        memory = self._block_memory(Step("norms", number), 0)
        block = Block(memory, self.norms[number].shape.num_rows, scores.width)
        load_scores(block, memory, scores, streaming)

        def write(share: Share) -> None:
            targets = TargetRows(self._score_band(number, TARGET_SCORES), streaming, share.firsts, share.stop)
            norms = AttentionNorms(layer, block, targets, streaming)

            def memory_of(num_rows: int) -> Rows:
                return share.rows(num_rows)[0][:, : norms.width]

            for part in sum_parts(norms, streaming, share.firsts, share.stop, memory_of, share.pool):
                share.write(part.first_row, len(part.sums))

        return write

    def _write_sums(self, number: int, summer_of: SummerOf, streaming: Streaming, share: Share) -> None:
        """Write sums of a block."""
        summed = to_be_stored if self.plan.layers[number].sums_lack_rows else all_rows
        summer, firsts, stop = summer_of(share), share.firsts, share.stop
        parts = sum_parts(summer, streaming, firsts, stop, lambda rows: share.rows(rows)[0], share.pool, summed)
        for part in parts:
            share.write(part.first_row, part.num_rows)

    def _write_next(self, number: int, summer_of: SummerOf, rows: RowsOfTable, share: Share) -> None:
        """Sum the last block of a layer, and make the next table of all sums."""
        planned = self.plan.layers[number]
        out = np.empty((min(self.plan.part_rows, share.stop), TILE_COLUMNS * planned.blocks[-1]), np.float32)
        summer, firsts, stop = summer_of(share), share.firsts, share.stop
        summed = with_edges if planned.sums_lack_rows else all_rows
        parts = sum_parts(summer, self.streaming, firsts, stop, lambda rows: out[:rows], share.pool, summed)
        earlier, owns = self._earlier_sums(number, share), self._own_rows(number, share)
        for part, sums, own in zip(parts, earlier, owns, strict=False):
            found = [*(each[: len(part.sums)] for each in sums), part.sums]
            rows.make(part.first_row, share.rows(part.num_rows), self._hidden(number, part, found, own))
            share.write(part.first_row, part.num_rows)

    def _block_memory(self, step: Step, tiles: int) -> BlockMemory:
        """Return the memory of a layer's blocks in steps of a kind, of some tiles, with scores if it has any."""
        if self._memory is not None and self._memory[:2] == (step.kind, step.number):
            return self._memory[2]
        self._memory = None
        is_scored = isinstance(self.network.layers[step.number], AttentionLayer)
        score_columns = self._score_band(step.number, SOURCE_SCORES).width if is_scored else 0
        num_rows = self.plan.layers[step.number].block_rows
        memory = BlockMemory(num_rows, TILE_COLUMNS * tiles + score_columns)
        self._memory = step.kind, step.number, memory
        return memory

    @property
    def _summing(self) -> Streaming:
        """Return the streaming of passes that write sums, in larger parts."""
        return replace(self.streaming, part_rows=self.plan.summed_rows)

    def _summers(self, number: int, number_of_band: int, memory: BlockMemory, streaming: Streaming) -> SummerOf:
        """Load a summed band as a block; return the function that makes what sums it for a worker."""
        planned, layer = self.plan.layers[number], self.network.layers[number]
        width = TILE_COLUMNS * planned.blocks[number_of_band]
        if not isinstance(layer, AttentionLayer):
            block = Block(memory, planned.block_rows, width)
            self._fill_block(block, memory, number, number_of_band)
            if layer.weighing == "symmetric":
                block.scale(streaming)
            return lambda _: NeighborSums(block, streaming, layer.weighing == "symmetric")
        scores, targets = self._score_band(number, SOURCE_SCORES), self._score_band(number, TARGET_SCORES)
        block = Block(memory, planned.block_rows, scores.width + width)
        load_scores(block, memory, scores, streaming)
        block.fill(self.tables[number].bands(number_of_band, number_of_band + 1), streaming, scores.width)
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
        if number == 0 and self.plan.own_are_features:
            own_groups = {HIDDEN: SplitColumns(own, threads)}
        else:
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
        if number == 0 and self.plan.own_are_features:
            return self._features(share)
        return self._parts(self.tables[number].bands(*layout.bands(own)) if own else None, share)

    def _features(self, share: Share) -> Iterator[list[Rows]]:
        """Yield the parts of the features. Those in table 0 are finite."""
        rows, num_checked = self._rows_of(0), self.plan.layers[0].block_rows
        parts = self.open_features(self.plan.part_rows).parts(share.firsts, share.stop)
        for first, part in zip(share.firsts, parts, strict=False):
            if first + len(part) > num_checked:
                rows.require_finite(first, torch.from_numpy(part))
            yield [part]

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
