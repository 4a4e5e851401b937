"""Standardised values: a model of values learns them with mean 0 and variance 1, whatever their units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Scaling:
    """Units of the columns of values: a value is output * scale + mean.

    means: mean of each column.
    scales: standard deviation of each column; 1 where it is 0.
    """

    means: tuple[float, ...]
    scales: tuple[float, ...]

    @classmethod
    def of(cls, labels: NDArray[Any]) -> Scaling:
        """Return the units of known values. labels: (nodes, columns), NaN for none."""
        means, scales = [], []
        for column in labels.T:
            known = column[~np.isnan(column)].astype(np.float64)
            deviation = float(known.std()) if len(known) else 0.0
            means.append(float(known.mean()) if len(known) else 0.0)
            scales.append(deviation or 1.0)
        return cls(tuple(means), tuple(scales))

    def standardised(self, labels: NDArray[Any]) -> NDArray[np.float32]:
        """Return what a model learns of some values, float32 (nodes, columns)."""
        scaled: NDArray[np.float32] = ((labels - np.array(self.means)) / np.array(self.scales)).astype(np.float32)
        return scaled

    def standardised_tensor(self, labels: Tensor) -> Tensor:
        """Compute standardised() on the device of a tensor, with the same bits."""
        means, scales = (
            torch.tensor(values, dtype=torch.float64, device=labels.device) for values in (self.means, self.scales)
        )
        return ((labels.double() - means) / scales).float()

    def restored(self, outputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the values that outputs stand for, float32 (nodes, columns)."""
        with np.errstate(over="ignore"):  # infinite values are refused by name
            values: NDArray[np.float32] = (outputs * np.array(self.scales) + np.array(self.means)).astype(np.float32)
        return values
