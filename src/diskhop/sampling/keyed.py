"""Keyed draws of whole arrays, with the definitions of the core (native/include/diskhop/base/random.hpp)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

# Increment of SplitMix64.
GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def key_of(parts: Iterable[int]) -> int:
    """Fold the parts of a key, in this order."""
    key = 0
    for part in parts:
        key = _mix((key ^ part) + GOLDEN & _MASK)
    return key


def draw_below(bound: int, count: int, key: int) -> NDArray[np.int64]:
    """Draw numbers from 0 to bound - 1, uniformly and independently, int64 (count). bound: below 2^53."""
    numbers = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN) + np.uint64(key)
    fractions = (mix_words(numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.minimum((fractions * bound).astype(np.int64), bound - 1)


def _mix(word: int) -> int:
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & _MASK
    return word ^ word >> 31


def mix_words(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble all bits of words, by a bijection: the output of SplitMix64 (Steele et al., 2014)."""
    words = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ words >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return words ^ words >> np.uint64(31)
