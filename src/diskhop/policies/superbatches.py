"""Lengths of superbatches, which are sampled ahead at once and grow from one to the next (Ginex, section 4)."""

from __future__ import annotations

import math

# One is trained on while the next one is sampled.
SUPERBATCHES_ON_DISK = 2
FIRST_LENGTH = 16
# Lengths of a run's first superbatch that are compared. Shorter ones let training start sooner, but training on them
# hides less of what follows.
FIRST_LENGTHS = (16, 12, 8, 6, 4, 2, 1)
# The last superbatch of a pass may grow more, by this factor: another one costs as much as its length saves.
_MOST_OVER = 1.3
# Passes until lengths mostly repeat.
_NUM_PASSES = 3


def superbatch_lengths(
    num_batches: int, most_batches: int, growth: float, after: int = 0, first: int = FIRST_LENGTH
) -> list[int]:
    """Return the batches of each superbatch of a pass, if the disk never fills up. after, first: see next_length()."""
    lengths: list[int] = []
    while num_batches > 0:
        after = next_length(after, num_batches, most_batches, growth, first)
        lengths.append(after)
        num_batches -= after
    return lengths


def lengths_of_passes(
    num_batches: int, most_batches: int, growth: float, first: int = FIRST_LENGTH, num_passes: int = _NUM_PASSES
) -> list[list[int]]:
    """Return superbatch_lengths() of the first passes of a run; later ones are like the last of them."""
    passes: list[list[int]] = []
    for _ in range(num_passes):
        after = passes[-1][-1] if passes else 0
        passes.append(superbatch_lengths(num_batches, most_batches, growth, after, first))
    return passes


def next_length(length: int, num_left: int, most_batches: int, growth: float, first: int = FIRST_LENGTH) -> int:
    """Return the length of the superbatch after one of `length` batches, when num_left batches of the pass are left.

    length: 0 if none was made before. The first superbatch is short, so that training starts soon.
    first: batches of the first superbatch, and at least of those that follow.

    What is left is divided into as few superbatches as growth allows, of nearly equal lengths if they can be: a short
    one at the end would not hide the preparation of the next pass.
    """
    if length == 0:
        return min(first, most_batches, num_left)
    wanted = max(growth * length, first)
    longest, count, covered = wanted, 0, 0.0
    while covered < num_left:
        if _MOST_OVER * longest >= most_batches:  # so are all that follow
            count += math.ceil((num_left - covered) / most_batches)
            break
        covered += _MOST_OVER * longest
        longest *= growth
        count += 1
    return num_left if count == 1 else min(math.ceil(wanted), most_batches, -(-num_left // count))
