"""Early stopping: one meaning of patience for training and for embeddings."""

from __future__ import annotations

from collections.abc import Sequence


def is_out_of_patience(validations: Sequence[float], patience: int) -> bool:
    """Whether the last `patience` validations in a row are not better than the best before them.

    validations: values so far, in order, higher is better; epochs without one are left out.
    patience: 0 for never.
    """
    if not validations or patience == 0:
        return False
    best = 0
    for number, value in enumerate(validations):
        if value > validations[best]:
            best = number
    return len(validations) - 1 - best >= patience
