"""Lengths of superbatches, which are sampled ahead at once and grow from one to the next (Ginex, section 4)."""

from __future__ import annotations

# One is trained on while the next one is sampled.
SUPERBATCHES_ON_DISK = 2
FIRST_LENGTH = 16


def superbatch_lengths(num_batches: int, most_batches: int, growth: float, after: int = 0) -> list[int]:
    """Return the batches of each superbatch of a pass, if the disk never fills up. after: see next_length()."""
    lengths: list[int] = []
    while num_batches > 0:
        after = next_length(after, num_batches, most_batches, growth)
        lengths.append(after)
        num_batches -= after
    return lengths


def next_length(length: int, num_left: int, most_batches: int, growth: float) -> int:
    """Return the length of the superbatch after one of `length` batches, when num_left batches of the pass are left.

    length: 0 if none was made before. The first superbatch is short, so that training starts soon.

    What is left is divided evenly, into superbatches of about growth * length: a short one at the end would not hide
    the preparation of the next pass.
    """
    if length == 0:
        return min(FIRST_LENGTH, most_batches, num_left)
    wanted = min(max(int(growth * length), FIRST_LENGTH), most_batches)
    num_superbatches = max(-(-num_left // most_batches), round(num_left / wanted))
    return -(-num_left // num_superbatches)
