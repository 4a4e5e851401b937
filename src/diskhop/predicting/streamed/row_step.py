"""Rows of a table computed from rows alone: from features, or from sums and the rows' own values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from diskhop.hops.stream.parts import Rows
from diskhop.predicting.streamed.layers import HIDDEN, StreamedLayer
from diskhop.predicting.streamed.layout import Layout
from diskhop.predicting.streamed.split_columns import SplitColumns, fill_groups, may_be_finite
from diskhop.runtime.blocks import row_ranges

KEPT = "kept"
PutBefore = Callable[[Mapping[str, SplitColumns], Tensor], bool]


class HiddenRows(ABC):
    """A layer's input, or the outputs, for the rows of a part."""

    @property
    def put_in_place(self) -> bool:
        """Whether put() takes no memory, and gives the same bits for any number of rows at once."""
        return False

    @abstractmethod
    def of(self, which: slice) -> Tensor:
        """Return some of the part's rows, float32 (rows, columns)."""

    def put(self, which: slice, out: SplitColumns) -> bool:
        """Fill columns with some of the part's rows; return False if any value is not finite, and maybe otherwise."""
        rows = self.of(which)
        out.fill(rows)
        return may_be_finite(rows)


@dataclass(frozen=True, slots=True, eq=False)
class FeatureRows(HiddenRows):
    """Features. prepare: maps them to the first layer's input. features: of the part, (rows, columns)."""

    prepare: Callable[[Tensor], Tensor]
    features: Tensor

    def of(self, which: slice) -> Tensor:
        """See HiddenRows."""
        return self.prepare(self.features[which]).float()


@dataclass(frozen=True, slots=True, eq=False)
class LayerRows(HiddenRows):
    """Output of a layer. sums, own, degrees: see StreamedLayer.after(), of the part.

    Sums may lack the rows without edges.
    """

    layer: StreamedLayer
    sums: SplitColumns
    own: Mapping[str, SplitColumns]
    degrees: Tensor

    @property
    def put_in_place(self) -> bool:
        """See HiddenRows."""
        return self.layer.puts_in_place

    def of(self, which: slice) -> Tensor:
        """See HiddenRows."""
        return self.layer.after(*self._operands(which))

    def put(self, which: slice, out: SplitColumns) -> bool:
        """See HiddenRows."""
        return self.layer.put(out, *self._operands(which))

    def _operands(self, which: slice) -> tuple[SplitColumns, dict[str, SplitColumns], Tensor]:
        own = {name: columns.of(which) for name, columns in self.own.items()}
        return self._sums_of(which), own, self.degrees[which]

    def _sums_of(self, which: slice) -> SplitColumns:
        if self.sums.num_rows == len(self.degrees):
            return self.sums.of(which)
        before, until = (int(self.degrees[:end].count_nonzero()) for end in (which.start, which.stop))
        return self.sums.of(slice(before, until))


class RowsOfTable:
    """Makes rows of a table: of the next layer's groups, or of the outputs if there is no next layer.

    layout: the table's groups.
    put_before: fills the groups, see StreamedLayer.put_before(); None for the outputs.
    product_rows: rows per product. Every call gets this many rows of the graph, but the last: libraries round
        differently for other shapes. Rows that are put in place are put all at once.
    on_bad_rows: raises the error for rows, by their number, with values that are not finite.
    threads: cores.
    """

    def __init__(
        self,
        layout: Layout,
        put_before: PutBefore | None,
        product_rows: int,
        on_bad_rows: Callable[[Sequence[int]], Exception],
        threads: int,
    ) -> None:
        self._layout = layout
        self._put_before = put_before
        self._product_rows = product_rows
        self._on_bad_rows = on_bad_rows
        self._threads = threads
        self._has_one_group = layout.names in ((KEPT,), (HIDDEN,))  # of the rows themselves

    def make(self, first_row: int, out: Sequence[Rows], hidden: HiddenRows) -> None:
        """Fill rows of the table, float32 (rows, columns) of each band."""
        is_at_once = self._has_one_group and hidden.put_in_place
        for start, stop in row_ranges(len(out[0]), len(out[0]) if is_at_once else self._product_rows):
            which, bands = slice(start, stop), [band[start:stop] for band in out]
            groups = {name: self._layout.columns(bands, [name], self._threads) for name in self._layout.names}
            if self._has_one_group:
                (columns,) = groups.values()
                if not hidden.put(which, columns):
                    self._require_finite(columns.joined(), first_row + start)
                continue
            rows = hidden.of(which)
            if not self._put(groups, rows):
                self._require_finite(rows, first_row + start)

    def require_finite(self, first_row: int, hidden: Tensor) -> None:
        """Raise the error for rows with values that are not finite. hidden: see HiddenRows, from first_row on."""
        if not may_be_finite(hidden):
            self._require_finite(hidden, first_row)

    def _put(self, groups: Mapping[str, SplitColumns], hidden: Tensor) -> bool:
        """Fill all groups; return False if a value of hidden is not finite, and maybe otherwise."""
        is_finite = [fill_groups(groups, {KEPT: hidden})] if KEPT in groups else []
        if self._put_before is not None:
            is_finite.append(self._put_before(groups, hidden))
        return all(is_finite)

    def _require_finite(self, hidden: Tensor, first_row: int) -> None:
        is_bad = ~torch.isfinite(hidden).all(dim=1)
        if is_bad.any():
            raise self._on_bad_rows([first_row + row for row in is_bad.nonzero().flatten().tolist()])
