"""Calibration: how often predictions are right, by how sure they are (Guo et al., 2017), as torchmetrics defines it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_NUM_BINS = 15
# As torchmetrics rounds them. A probability of exactly 1 has a bin of its own.
_EDGES: NDArray[np.float32] = torch.linspace(0, 1, _NUM_BINS + 1).numpy()


class Calibration:
    """Predictions counted in 15 bins of equal width by their probability, and one for probability 1."""

    def __init__(self) -> None:
        self._num_all = np.zeros(len(_EDGES), np.int64)
        self._num_right = np.zeros(len(_EDGES), np.int64)
        self._sums = np.zeros(len(_EDGES))

    def update(self, probabilities: NDArray[np.float32], is_right: NDArray[np.bool_]) -> None:
        """Add predictions with their probabilities."""
        bins = np.searchsorted(_EDGES, probabilities, "right") - 1
        self._num_all += np.bincount(bins, minlength=len(_EDGES))
        self._num_right += np.bincount(bins[is_right], minlength=len(_EDGES))
        self._sums += np.bincount(bins, probabilities, minlength=len(_EDGES))

    def error(self) -> float:
        """Return the expected calibration error: the mean gap between probability and accuracy over all predictions."""
        return float(np.abs(self._num_right - self._sums).sum() / self._num_all.sum())

    def bins(self) -> list[dict[str, Any]]:
        """Return the bins: bounds, number of predictions, mean probability and accuracy; None for empty bins."""
        edges = [*_EDGES.tolist(), 1.0]
        found = []
        for number, count in enumerate(self._num_all.tolist()):
            means = (self._sums[number] / count, self._num_right[number] / count) if count else None
            found.append(
                {
                    "from": round(edges[number], 6),
                    "to": round(edges[number + 1], 6),
                    "predictions": count,
                    "probability": None if means is None else float(means[0]),
                    "accuracy": None if means is None else float(means[1]),
                }
            )
        return found
