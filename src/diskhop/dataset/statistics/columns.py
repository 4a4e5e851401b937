"""Ranges of columns of numbers: least, mean and largest value, zeros, and values that are not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class ColumnRanges:
    """Ranges of the columns of a table, added up block by block.

    All are arrays of a value per column. lowest and highest: of the finite values, NaN if there are none. num_zeros:
    values that are 0. num_not_finite: NaN and infinities. num_rows: rows so far.
    """

    def __init__(self, num_columns: int) -> None:
        self.num_rows = 0
        self.num_zeros = np.zeros(num_columns, np.int64)
        self.num_not_finite = np.zeros(num_columns, np.int64)
        self._lowest = np.full(num_columns, np.inf)
        self._highest = np.full(num_columns, -np.inf)
        self._sums = np.zeros(num_columns)

    def add(self, rows: NDArray[Any]) -> None:
        """Add a block (rows, columns)."""
        if len(rows) == 0:
            return
        values = rows if rows.dtype == np.float32 else rows.astype(np.float32)
        # A sum that is not finite tells of values that are not, at the price of a pass that is made anyway.
        sums = values.sum(axis=0, dtype=np.float64)
        self.num_zeros += len(values) - np.count_nonzero(values, axis=0)
        if not np.isfinite(sums).all():
            is_bad = ~np.isfinite(values)
            self.num_not_finite += np.count_nonzero(is_bad, axis=0)
            sums = np.where(is_bad, 0, values).sum(axis=0, dtype=np.float64)
            low, high = np.where(is_bad, np.inf, values).min(axis=0), np.where(is_bad, -np.inf, values).max(axis=0)
        else:
            low, high = values.min(axis=0), values.max(axis=0)
        self._sums += sums
        np.minimum(self._lowest, low, out=self._lowest)
        np.maximum(self._highest, high, out=self._highest)
        self.num_rows += len(values)

    @property
    def num_finite(self) -> NDArray[np.int64]:
        """Finite values of each column."""
        return self.num_rows - self.num_not_finite

    @property
    def lowest(self) -> NDArray[np.float64]:
        """See the class."""
        return np.where(self.num_finite > 0, self._lowest, np.nan)

    @property
    def highest(self) -> NDArray[np.float64]:
        """See the class."""
        return np.where(self.num_finite > 0, self._highest, np.nan)

    @property
    def means(self) -> NDArray[np.float64]:
        """Mean of the finite values of each column, NaN if there are none."""
        sums: NDArray[np.float64] = np.divide(
            self._sums, self.num_finite, out=np.full(len(self._sums), np.nan), where=self.num_finite > 0
        )
        return sums
