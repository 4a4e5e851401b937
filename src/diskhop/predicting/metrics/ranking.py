"""ROC-AUC and average precision, exact: from all scores, not from bins of them.

Both need the scores of positives and of negatives, each sorted; everything else is done a block at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.runtime.blocks import row_ranges

Scores = NDArray[np.float32]

_BLOCK = 1 << 16


class Sides(NamedTuple):
    """Scores of positives and of negatives, both ascending, neither empty."""

    positives: Scores
    negatives: Scores


def has_both(is_positive: NDArray[np.bool_]) -> bool:
    """Return whether there are positives and negatives."""
    return bool(is_positive.any() and not is_positive.all())


def sort_sides(scores: Scores, is_positive: NDArray[np.bool_]) -> Sides:
    """Separate positives from negatives and sort both. Needs as much memory as the scores."""
    sides = Sides(scores[is_positive], scores[~is_positive])
    for side in sides:
        side.sort()
    return sides


def roc_auc(sides: Sides) -> float:
    """Return the chance that a positive scores higher than a negative, ties counting half (Mann-Whitney's U)."""
    positives, negatives = sides
    # Twice the number of negatives below each positive, so that it is a whole number.
    doubled = 0
    for start, stop in row_ranges(len(positives), _BLOCK):
        block = positives[start:stop]
        doubled += int(np.searchsorted(negatives, block, "left").sum())
        doubled += int(np.searchsorted(negatives, block, "right").sum())
    return doubled / (2 * len(positives) * len(negatives))


def average_precision(sides: Sides) -> float:
    """Return the sum over thresholds of precision times the gain in recall: the mean of the positives' precisions.

    The precision of a positive is that of the nodes which score as high as it does or higher.
    """
    positives, negatives = sides
    total = 0.0
    for start, stop in row_ranges(len(positives), _BLOCK):
        block = positives[start:stop]
        num_right = len(positives) - np.searchsorted(positives, block, "left")
        num_wrong = len(negatives) - np.searchsorted(negatives, block, "left")
        total += float((num_right / (num_right + num_wrong)).sum())
    return total / len(positives)
