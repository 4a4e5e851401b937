"""Dividing memory between neighbour lists and feature rows by the seconds that an epoch takes."""

from __future__ import annotations

from collections.abc import Callable

# Another division must save at least this share of the seconds.
_WORTH_IT = 0.99
_MOST_HALVINGS = 3


def fewest_seconds(most_bytes: int, seconds: float, seconds_of: Callable[[int], float | None]) -> int:
    """Return the bytes for lists with which an epoch takes the fewest seconds: most_bytes, a half, quarter or eighth.

    Lists and rows are cached by how often they are read, so each further byte of either saves less than the one before,
    and halving ends where it does not save any more.

    seconds: with most_bytes. seconds_of: predicted seconds with fewer bytes for lists and as many more for rows; None
    if lists do not work with so few.
    """
    best = most_bytes
    for _ in range(_MOST_HALVINGS):
        found = seconds_of(best // 2)
        if found is None or found > _WORTH_IT * seconds:
            break
        best, seconds = best // 2, found
    return best
