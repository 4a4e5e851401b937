"""Rows of a matrix that lie anywhere in it, such as a mini-batch's in a store's buffer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class PlacedRows:
    """Rows that a linear layer reads where they lie; they have no gradient.

    matrix: of any dtype (rows, columns), contiguous.
    places: int64, the row of the matrix that each row is.
    """

    matrix: Tensor
    places: Tensor

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.places)

    def whole(self) -> Tensor:
        """Return a copy of the rows, one after the other."""
        return self.matrix.index_select(0, self.places)
