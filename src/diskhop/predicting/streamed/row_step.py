"""Rows of a table computed from rows alone: from features, or from sums and the rows' own values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from diskhop.hops.stream.parts import Rows
from diskhop.predicting.streamed.layers import StreamedLayer
from diskhop.predicting.streamed.layout import Layout
from diskhop.runtime.blocks import row_ranges

KEPT = "kept"


class RowsOfTable:
    """Makes rows of a table: of the next layer's groups, or of the outputs if there is no next layer.

    layout: the table's groups.
    layer: the layer that reads the table; None for the outputs.
    product_rows: rows per product. Every call gets this many rows of the graph, but the last: libraries round
        differently for other shapes.
    on_bad_rows: raises the error for rows, by their number, with values that are not finite.
    threads: cores.
    """

    def __init__(
        self,
        layout: Layout,
        layer: StreamedLayer | None,
        product_rows: int,
        on_bad_rows: Callable[[Sequence[int]], Exception],
        threads: int,
    ) -> None:
        self._layout = layout
        self._layer = layer
        self._product_rows = product_rows
        self._on_bad_rows = on_bad_rows
        self._threads = threads

    def make(self, first_row: int, out: Sequence[Rows], hidden_of: Callable[[slice], Tensor]) -> None:
        """Fill rows of the table, float32 (rows, columns) of each band.

        hidden_of: returns the layer's input, or the outputs, for a slice of the part's rows.
        """
        for start, stop in row_ranges(len(out[0]), self._product_rows):
            hidden = hidden_of(slice(start, stop))
            if not math.isfinite(hidden.sum().item()):
                self._require_finite(hidden, first_row + start)
            self._layout.pack(self._groups(hidden), [band[start:stop] for band in out], self._threads)

    def _groups(self, hidden: Tensor) -> Mapping[str, Tensor]:
        return {KEPT: hidden, **({} if self._layer is None else self._layer.before(hidden))}

    def _require_finite(self, hidden: Tensor, first_row: int) -> None:
        # The sum may overflow, so every value is checked.
        is_bad = ~torch.isfinite(hidden).all(dim=1)
        if is_bad.any():
            raise self._on_bad_rows([first_row + row for row in is_bad.nonzero().flatten().tolist()])
