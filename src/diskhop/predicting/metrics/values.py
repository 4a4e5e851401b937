"""Errors of predicted values: RMSE, MAE and R2, as scikit-learn defines them, over the known values of each column."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float32]


class ValueErrors:
    """Sums of errors per column, in float64. Predictions and labels are in the same units."""

    def __init__(self, num_columns: int) -> None:
        self._counts = np.zeros(num_columns, np.int64)
        self._absolute = np.zeros(num_columns)
        self._squared = np.zeros(num_columns)
        # Labels' mean and sum of squared deviations from it (Chan et al., 1979): no digits cancel.
        self._means = np.zeros(num_columns)
        self._deviations = np.zeros(num_columns)

    @property
    def num_columns(self) -> int:
        """Number of columns."""
        return len(self._counts)

    def update(self, values: Values, labels: NDArray[Any]) -> None:
        """Add nodes. values: (nodes, columns). labels: (nodes, columns), NaN for none."""
        added = ValueErrors(self.num_columns)
        is_known = ~np.isnan(labels)
        known = np.where(is_known, labels, 0).astype(np.float64)
        errors = np.where(is_known, values - known, 0)
        added._absolute = np.abs(errors).sum(axis=0)
        added._squared = np.square(errors).sum(axis=0)
        added._counts = is_known.sum(axis=0)
        added._means = known.sum(axis=0) / np.maximum(added._counts, 1)
        added._deviations = np.square(np.where(is_known, known - added._means, 0)).sum(axis=0)
        self.merge(added)

    def merge(self, other: ValueErrors) -> None:
        """Add the nodes of another one."""
        self._absolute += other._absolute
        self._squared += other._squared
        total = self._counts + other._counts
        gap = other._means - self._means
        share = other._counts / np.maximum(total, 1)
        self._deviations += other._deviations + np.square(gap) * self._counts * share
        self._means += gap * share
        self._counts = total

    def values(self) -> dict[str, float | None]:
        """Return rmse, mae and r2, each the mean over the columns that have it; None if none has."""
        columns = self.columns()
        found: dict[str, float | None] = {}
        for name in ("rmse", "mae", "r2"):
            known = [column[name] for column in columns if column[name] is not None]
            found[name] = float(np.mean(known)) if known else None
        return found

    def columns(self) -> list[dict[str, Any]]:
        """Return rmse, mae, r2, number of known labels and their mean and standard deviation, for each column.

        Without labels all but their number is None; so is r2 of labels that are all alike.
        """
        found = []
        for column, count in enumerate(self._counts.tolist()):
            squared, deviation = float(self._squared[column]), float(self._deviations[column])
            found.append(
                {
                    "labels": count,
                    "rmse": (squared / count) ** 0.5 if count else None,
                    "mae": float(self._absolute[column]) / count if count else None,
                    "r2": 1 - squared / deviation if deviation > 0 else None,
                    "mean": float(self._means[column]) if count else None,
                    "deviation": (deviation / count) ** 0.5 if count else None,
                }
            )
        return found


def varies(labels: NDArray[Any]) -> bool:
    """Return whether known labels of a column are not all alike."""
    known = labels[~np.isnan(labels)]
    return len(known) > 0 and bool((known != known[0]).any())
