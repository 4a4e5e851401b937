"""Layout of a table between layers: named groups of columns, in bands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from diskhop.hops.stream.parts import BandShape, Rows
from diskhop.hops.tables import TILE_COLUMNS
from diskhop.predicting.streamed.layers import num_tiles
from diskhop.predicting.streamed.split_columns import SplitColumns


class Layout:
    """Places of groups in a table.

    groups: columns of each group, by name. A group begins with a whole tile.
    blocks: tiles of each band of the groups that are summed, the first ones. Each other group is a band.
    """

    def __init__(self, groups: Mapping[str, int], blocks: Sequence[int] = ()) -> None:
        self._dims = dict(groups)
        starts, column = {}, 0
        for name, dim in self._dims.items():
            starts[name] = column
            column += TILE_COLUMNS * num_tiles(dim)
        self._starts = starts
        ends = [*list(starts.values())[1:], column]
        edges = [TILE_COLUMNS * tiles for tiles in accumulate(blocks, initial=0)]
        self._bands = list(pairwise([*edges, *(end for end in ends if end > edges[-1])]))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the groups, in order."""
        return tuple(self._dims)

    def has(self, name: str) -> bool:
        """Return whether there is a group of this name."""
        return name in self._dims

    def dim(self, name: str) -> int:
        """Return the columns of a group."""
        return self._dims[name]

    def shape(self, num_rows: int, stored: NDArray[np.int32] | None = None) -> BandShape:
        """Return the layout of the file. stored: see BandShape."""
        return BandShape(num_rows, tuple(end - start for start, end in self._bands), stored)

    def bands(self, names: Iterable[str]) -> tuple[int, int]:
        """Return the first band of some adjacent groups, and their last band + 1."""
        found = [place for name in names for place, _, _ in self._places(name)]
        return min(found), max(found) + 1

    def columns(self, rows: Sequence[Rows], names: Iterable[str], threads: int, first_band: int = 0) -> SplitColumns:
        """Return groups of rows in bands from first_band on, next to one another, without the columns that pad them."""
        places = [place for name in names for place in self._places(name)]
        return SplitColumns([rows[band - first_band][:, start:end] for band, start, end in places], threads)

    def _places(self, name: str) -> list[tuple[int, int, int]]:
        """Return the bands of a group, and its columns in each: (band, first column, last + 1)."""
        start, dim = self._starts[name], self._dims[name]
        return [
            (band, max(start, first) - first, min(start + dim, end) - first)
            for band, (first, end) in enumerate(self._bands)
            if first < start + dim and start < end
        ]
