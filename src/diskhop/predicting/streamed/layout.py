"""Layout of a table between layers: named groups of columns, each in tiles of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from diskhop.hops.stream.parts import Rows, table_shape
from diskhop.hops.tables import TILE_COLUMNS, TableShape
from diskhop.predicting.streamed.layers import num_tiles


class Layout:
    """Places of groups in a table, in their order."""

    def __init__(self, groups: Mapping[str, int]) -> None:
        self._dims = dict(groups)
        tiles = [num_tiles(dim) for dim in self._dims.values()]
        starts = [0, *accumulate(tiles)]
        self._tiles = {
            name: (start, start + count) for name, start, count in zip(self._dims, starts, tiles, strict=False)
        }
        self.num_tiles = starts[-1]

    def has(self, name: str) -> bool:
        """Return whether there is a group of this name."""
        return name in self._dims

    def dim(self, name: str) -> int:
        """Return the columns of a group."""
        return self._dims[name]

    def tiles(self, names: Iterable[str]) -> tuple[int, int]:
        """Return the first tile of some adjacent groups, and their last tile + 1."""
        ranges = [self._tiles[name] for name in names]
        return min(first for first, _ in ranges), max(end for _, end in ranges)

    def shape(self, num_rows: int) -> TableShape:
        """Return the layout of the file."""
        return table_shape(num_rows, TILE_COLUMNS * self.num_tiles)

    def empty_rows(self, num_rows: int) -> Rows:
        """Return rows of the table, zeros."""
        return np.zeros((num_rows, TILE_COLUMNS * self.num_tiles), np.float32)

    def unpack(self, rows: Rows, names: Iterable[str], first_tile: int) -> dict[str, Tensor]:
        """Return views of groups in rows that begin with a tile."""
        return {name: self._columns(rows, name, first_tile) for name in names}

    def join(self, rows: Rows, names: Iterable[str], first_tile: int) -> Tensor:
        """Return groups next to one another, without the columns that pad them."""
        parts = list(self.unpack(rows, names, first_tile).values())
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def pack(self, groups: Mapping[str, Tensor], out: Rows) -> None:
        """Fill rows of the table; padding stays as it is."""
        for name in self._dims:
            self._columns(out, name, 0).copy_(groups[name])

    def _columns(self, rows: Rows, name: str, first_tile: int) -> Tensor:
        start = TILE_COLUMNS * (self._tiles[name][0] - first_tile)
        return torch.from_numpy(rows[:, start : start + self._dims[name]])
