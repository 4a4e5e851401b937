"""The two passes of a layer with attention: norms of every row's softmax, then sums of rows by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from diskhop._native import AttendedHead, BufferPool, add_attended_rows, add_attention_norms
from diskhop.hops.stream.lists import Stretch
from diskhop.hops.stream.parts import BandReader, Bands, Rows
from diskhop.hops.tables import TILE_COLUMNS
from diskhop.predicting.streamed.layers import AttentionLayer, num_tiles
from diskhop.predicting.streamed.passes import Block, BlockMemory, Streaming

# Score of the row of zeros: finite, so that differences are too, and no exponential of it is more than zero.
_NO_SCORE = -1e30


def load_scores(block: Block, memory: BlockMemory, source: Bands, streaming: Streaming) -> None:
    """Fill the first columns of a block with the sources' scores, unless its memory has them in place."""
    width = block.rows.shape[1]
    if memory.scored_width != width:
        block.fill(source, streaming)
        memory.scored_width = width
    block.all_rows[-1, : source.width] = _NO_SCORE


class HeadColumns(NamedTuple):
    """Columns of a head that lie in a block, and where their sums go; see AttendedHead."""

    head: int
    first_column: int
    num_columns: int
    out_column: int

    def attended(self) -> AttendedHead:
        """Return it for the core; the scores of head h are the block's column h."""
        return AttendedHead(
            head=self.head,
            score_column=self.head,
            first_column=self.first_column,
            num_columns=self.num_columns,
            out_column=self.out_column,
        )


class TargetRows:
    """Rows of a band, one part after the other. firsts: first row of each part. stop: last row + 1."""

    def __init__(self, band: Bands, streaming: Streaming, firsts: Iterable[int], stop: int) -> None:
        reader = BandReader(band, streaming.part_rows, streaming.engine, BufferPool(0))
        self._parts = reader.parts(firsts, stop)

    def next(self, num_rows: int) -> Rows:
        """Return the next part, of some rows."""
        (part,) = next(self._parts)
        assert len(part) == num_rows
        return part


class AttentionNorms:
    """Norms of the rows' softmax, float32 (rows, 2 heads): largest scores, and sums of exponentials (see Summer).

    scores: block of the sources' scores, of all nodes. targets: target scores of the parts.
    """

    adds_own = True

    def __init__(self, layer: AttentionLayer, scores: Block, targets: TargetRows, streaming: Streaming) -> None:
        self._layer = layer
        self._scores = scores.all_rows[:, : layer.num_heads]
        self._targets = targets
        self._streaming = streaming
        self._target_scores: Rows = self._scores[:0]

    @property
    def width(self) -> int:
        """See Summer."""
        return 2 * self._layer.num_heads

    def begin(self, first_row: int, sums: Rows) -> None:
        """See Summer."""
        self._target_scores = self._targets.next(len(sums))[:, : self._layer.num_heads]
        sums[:, : self._layer.num_heads] = -np.inf
        sums[:, self._layer.num_heads :] = 0

    def add(self, stretch: Stretch, sums: Rows) -> None:
        """See Summer."""
        add_attention_norms(
            self._scores,
            self._target_scores,
            self._layer.negative_slope,
            stretch.indptr,
            stretch.indices,
            stretch.first_edge,
            sums,
            self._streaming.threads,
        )

    def end(self, first_row: int, sums: Rows) -> None:
        """See Summer. Adds the row itself."""
        num_heads = self._layer.num_heads
        own_scores = self._scores[first_row : first_row + len(sums)]
        score = own_score(own_scores, self._target_scores, self._layer.negative_slope)
        norms = torch.from_numpy(sums)
        old_most, old_sum = norms[:, :num_heads], norms[:, num_heads:]
        most = torch.maximum(old_most, score)
        old_sum.mul_(torch.exp(old_most - most)).add_(torch.exp(score - most))
        old_most.copy_(most)


class AttentionSums:
    """Sums of a block's rows by attention, some columns of some heads (see Summer).

    block: the sources' scores of all heads, in whole tiles, then a band. heads: the columns, by head.
    scores: target scores of the parts. norms: of all edges, and the rows themselves.
    """

    adds_own = True

    def __init__(
        self,
        layer: AttentionLayer,
        block: Block,
        heads: Sequence[HeadColumns],
        score_columns: int,
        scores: TargetRows,
        norms: TargetRows,
        streaming: Streaming,
    ) -> None:
        self._layer = layer
        self._block = block
        self._heads = heads
        self._attended = [each.attended() for each in heads]
        self._score_columns = score_columns
        self._scores = scores
        self._norms = norms
        self._streaming = streaming
        self._target_scores: Rows = block.rows[:0]
        self._target_norms: Rows = block.rows[:0]

    @property
    def width(self) -> int:
        """See Summer."""
        return int(self._block.rows.shape[1]) - self._score_columns

    def begin(self, first_row: int, sums: Rows) -> None:
        """See Summer."""
        self._target_scores = self._scores.next(len(sums))[:, : self._layer.num_heads]
        self._target_norms = self._norms.next(len(sums))[:, : 2 * self._layer.num_heads]
        sums[:] = 0

    def add(self, stretch: Stretch, sums: Rows) -> None:
        """See Summer."""
        add_attended_rows(
            self._block.columns,
            self._attended,
            self._target_scores,
            self._target_norms,
            self._layer.negative_slope,
            stretch.indptr,
            stretch.indices,
            stretch.first_edge,
            sums,
            self._streaming.threads,
        )

    def end(self, first_row: int, sums: Rows) -> None:
        """See Summer. Adds the row itself."""
        num_heads = self._layer.num_heads
        own = self._block.rows[first_row : first_row + len(sums)]
        score = own_score(own[:, :num_heads], self._target_scores, self._layer.negative_slope)
        norms = torch.from_numpy(self._target_norms)
        weights = torch.exp(score - norms[:, :num_heads]) / norms[:, num_heads:]
        out, values = torch.from_numpy(sums), torch.from_numpy(own)
        for each in self._heads:
            into = out[:, each.out_column : each.out_column + each.num_columns]
            columns = values[:, each.first_column : each.first_column + each.num_columns]
            into.addcmul_(columns, weights[:, each.head, None])


def own_score(sources: Rows, targets: Rows, negative_slope: float) -> Tensor:
    """Return the scores of rows with themselves, float32 (rows, heads)."""
    return functional.leaky_relu(torch.from_numpy(sources) + torch.from_numpy(targets), negative_slope)


def attended_heads(layer: AttentionLayer, first_tile: int, end_tile: int, score_columns: int) -> list[HeadColumns]:
    """Return the heads whose columns lie in some tiles of the summed groups."""
    found = []
    start = 0  # first tile of the head
    for head, name in enumerate(layer.summed):
        dim = layer.groups[name]
        end = start + num_tiles(dim)
        first, last = max(start, first_tile), min(end, end_tile)
        if first < last:
            place = TILE_COLUMNS * (first - first_tile)
            found.append(
                HeadColumns(
                    head=head,
                    first_column=score_columns + place,
                    num_columns=min(dim, TILE_COLUMNS * (last - start)) - TILE_COLUMNS * (first - start),
                    out_column=place,
                )
            )
        start = end
    return found
