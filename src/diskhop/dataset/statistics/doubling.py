"""Histograms in bins that double: 0, 1, 2 to 3, 4 to 7, and so on, for counts that range over many magnitudes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUM_BINS = 65


def bin_of(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the bin of each value: 0 for 0, else 1 + floor(log2(value)). Values: integers from 0 to below 2^52."""
    # The exponent of a float64 is exact for these integers.
    return np.frexp(values.astype(np.float64))[1].astype(np.int64)


@dataclass(slots=True)
class DoublingHistogram:
    """Numbers of values by bin, with the largest value and the sum.

    counts: number of values in each bin.
    """

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(_NUM_BINS, np.int64))
    highest: int = 0
    total: int = 0

    def add(self, values: NDArray[Any]) -> None:
        """Add a block of values."""
        self.counts += np.bincount(bin_of(values), minlength=_NUM_BINS)
        self.highest = max(self.highest, int(values.max(initial=0)))
        self.total += int(values.sum(dtype=np.int64))

    @property
    def num_values(self) -> int:
        """Number of values."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Mean of the values; 0 without values."""
        return self.total / max(1, self.num_values)

    def bars(self) -> list[tuple[str, int]]:
        """Return the range of each bin and the number of values in it, from the first bin in use to the last."""
        used = np.flatnonzero(self.counts)
        if len(used) == 0:
            return []
        return [(_title(number), int(self.counts[number])) for number in range(int(used[0]), int(used[-1]) + 1)]


def _title(number: int) -> str:
    if number < 2:
        return str(number)
    return f"{2 ** (number - 1):,} to {2**number - 1:,}"
