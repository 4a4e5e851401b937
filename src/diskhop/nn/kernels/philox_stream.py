"""A stream of NumPy's Philox: its constants, and its words as int64; see philox.py."""

from __future__ import annotations

from typing import NamedTuple

WORDS_PER_BLOCK = 8
NUM_ROUNDS = 10
MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
KEY_STEPS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B


class Stream(NamedTuple):
    """A stream of draws. key, counter: unsigned 64-bit words, as numpy.random.Philox takes them."""

    key: tuple[int, int]
    counter: tuple[int, int, int, int]


def signed(word: int) -> int:
    """Return the int64 with the bits of an unsigned word, modulo 2^64."""
    word %= 1 << 64
    return word - (1 << 64) if word >> 63 else word
