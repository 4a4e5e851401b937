"""Early stopping: one meaning of patience for training and for embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import gt

IsBetter = Callable[[float, float], bool]


def is_out_of_patience(validations: Sequence[float], patience: int, is_better: IsBetter = gt) -> bool:
    """Whether the last `patience` validations in a row are not better than the best before them.

    validations: values so far, in order; epochs without one are left out.
    patience: 0 for never.
    is_better: whether a value is better than another; by default if it is higher.
    """
    if not validations or patience == 0:
        return False
    best = 0
    for number, value in enumerate(validations):
        if is_better(value, validations[best]):
            best = number
    return len(validations) - 1 - best >= patience
