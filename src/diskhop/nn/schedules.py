"""Learning rates over time, as factors of the rate that was chosen.

A factor is a pure function of the step's number and of the validations so far, so a resumed run needs no state for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence


def step_factor(step: int, num_steps: int, *, warmup: int, is_cosine: bool) -> float:
    """Return the factor of a step: a linear rise over `warmup` steps, then 1, or half a cosine from 1 down to 0.

    step: number of the step, from 0. num_steps: steps of all epochs.
    """
    if step < warmup:
        return (step + 1) / warmup
    if not is_cosine:
        return 1.0
    return (1 + math.cos(math.pi * (step - warmup) / max(1, num_steps - warmup))) / 2


def count_plateaus(validations: Sequence[float], patience: int, is_better: Callable[[float, float], bool]) -> int:
    """Count how often `patience` validations in a row were not better than the best before them.

    Each time counting begins again, as in torch's ReduceLROnPlateau with a patience of one less and no threshold.
    """
    plateaus = num_worse = 0
    best: float | None = None
    for value in validations:
        if best is None or is_better(value, best):
            best, num_worse = value, 0
            continue
        num_worse += 1
        if num_worse == patience:
            plateaus, num_worse = plateaus + 1, 0
    return plateaus
