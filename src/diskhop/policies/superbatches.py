"""Lengths of superbatches, which are sampled ahead at once and grow during an epoch (Ginex, section 4)."""

from __future__ import annotations

# One is trained on while the next one is sampled.
SUPERBATCHES_ON_DISK = 2
FIRST_LENGTH = 16


def superbatch_lengths(num_batches: int, most_batches: int, growth: float) -> list[int]:
    """Return the batches of each superbatch of a pass, if the disk never fills up."""
    lengths: list[int] = []
    length = min(FIRST_LENGTH, most_batches)
    while num_batches > 0:
        lengths.append(min(length, num_batches))
        num_batches -= lengths[-1]
        length = next_length(length, most_batches, growth)
    return lengths


def next_length(length: int, most_batches: int, growth: float) -> int:
    """Length of the superbatch after one of `length` batches."""
    return min(int(growth * length), most_batches)
