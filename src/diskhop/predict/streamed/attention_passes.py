"""The two passes of a layer with attention: norms of every row's softmax, then sums of rows by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from diskhop._native import AttendedHead, add_attended_rows, add_attention_norms
from diskhop.hops.stream.lists import Stretch
from diskhop.hops.stream.parts import Columns, Rows, TileReader
from diskhop.hops.tables import TILE_COLUMNS
from diskhop.predict.streamed.layers import AttentionLayer, num_tiles
from diskhop.predict.streamed.passes import Block, Streaming


class TargetRows:
    """Rows of some columns for one part after the other, in the order of the parts."""

    def __init__(self, columns: Columns, streaming: Streaming, stop: int) -> None:
        self._columns = columns
        self._streaming = streaming
        self._stop = stop
        self._parts: Iterator[Rows] | None = None

    def of(self, first_row: int) -> Rows:
        """Return the rows of the next part; the first call says which part that is."""
        if self._parts is None:
            streaming = self._streaming
            reader = TileReader(self._columns, streaming.part_rows, streaming.engine, streaming.threads)
            self._parts = reader.parts(first_row, self._stop)
        return next(self._parts)


class AttentionNorms:
    """Norms of the rows' softmax, float32 (rows, 2 heads): largest scores, and sums of exponentials (see Summer).

    scores: block of the sources' scores, of all nodes. targets: target scores of the parts.
    """

    def __init__(self, layer: AttentionLayer, scores: Block, targets: TargetRows, streaming: Streaming) -> None:
        self._layer = layer
        self._scores = scores.rows[:, : layer.num_heads]
        self._targets = targets
        self._streaming = streaming
        self._target_scores: Rows = self._scores[:0]

    @property
    def width(self) -> int:
        """See Summer."""
        return 2 * self._layer.num_heads

    def begin(self, first_row: int, sums: Rows) -> None:
        """See Summer."""
        self._target_scores = self._targets.of(first_row)[:, : self._layer.num_heads]
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
        """See Summer. Adds the row itself once, in place of loops."""
        num_heads = self._layer.num_heads
        own_scores = self._scores[first_row : first_row + len(sums)]
        score = own_score(own_scores, self._target_scores, self._layer.negative_slope)
        norms = torch.from_numpy(sums)
        old_most, old_sum = norms[:, :num_heads], norms[:, num_heads:]
        most = torch.maximum(old_most, score)
        times = own_times(self._streaming, first_row, len(sums))
        old_sum.mul_(torch.exp(old_most - most)).add_(torch.exp(score - most) * times)
        old_most.copy_(most)


class AttentionSums:
    """Sums of a block's rows by attention, some columns of some heads (see Summer).

    block: the sources' scores of all heads, in whole tiles, then the columns. heads: the columns, by head.
    scores: target scores of the parts. norms: of all edges, and the rows themselves.
    """

    def __init__(
        self,
        layer: AttentionLayer,
        block: Block,
        heads: Sequence[AttendedHead],
        score_columns: int,
        scores: TargetRows,
        norms: TargetRows,
        streaming: Streaming,
    ) -> None:
        self._layer = layer
        self._block = block
        self._heads = heads
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
        self._target_scores = self._scores.of(first_row)[:, : self._layer.num_heads]
        self._target_norms = self._norms.of(first_row)[:, : 2 * self._layer.num_heads]
        sums[:] = 0

    def add(self, stretch: Stretch, sums: Rows) -> None:
        """See Summer."""
        add_attended_rows(
            self._block.columns,
            self._heads,
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
        """See Summer. Adds the row itself once, in place of loops."""
        num_heads = self._layer.num_heads
        own = self._block.rows[first_row : first_row + len(sums)]
        score = own_score(own[:, :num_heads], self._target_scores, self._layer.negative_slope)
        norms = torch.from_numpy(self._target_norms)
        weights = torch.exp(score - norms[:, :num_heads]) / norms[:, num_heads:]
        weights *= own_times(self._streaming, first_row, len(sums))
        out, values = torch.from_numpy(sums), torch.from_numpy(own)
        for each in self._heads:
            into = out[:, each.out_column : each.out_column + each.num_columns]
            columns = values[:, each.first_column : each.first_column + each.num_columns]
            into.addcmul_(columns, weights[:, each.head, None])


def own_score(sources: Rows, targets: Rows, negative_slope: float) -> Tensor:
    """Return the scores of rows with themselves, float32 (rows, heads)."""
    return functional.leaky_relu(torch.from_numpy(sources) + torch.from_numpy(targets), negative_slope)


def own_times(streaming: Streaming, first_row: int, num_rows: int) -> Tensor:
    """Return how often a row is to be added so that it counts once, float32 (rows, 1): lists may have loops."""
    loops = streaming.loops(first_row, num_rows)
    return torch.ones(num_rows, 1) if loops is None else 1 - loops


def attended_heads(layer: AttentionLayer, first_tile: int, end_tile: int, score_columns: int) -> list[AttendedHead]:
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
                AttendedHead(
                    head=head,
                    score_column=head,
                    first_column=score_columns + place,
                    num_columns=min(dim, TILE_COLUMNS * (last - start)) - TILE_COLUMNS * (first - start),
                    out_column=place,
                )
            )
        start = end
    return found
