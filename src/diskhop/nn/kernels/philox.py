"""NumPy's Philox on a device: the words that numpy.random.Generator draws from, at any place of its stream.

Philox4x64 with ten rounds (Salmon et al., 2011): block b of four 64-bit words is a function of the key and the counter
plus b + 1. NumPy takes 32 bits at a time where a range has no more, the lower half of a word first, and draws again
what its method (Lemire, 2019) rejects. All arithmetic is of int64, whose products and sums wrap.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diskhop.nn.kernels.choice import runs_kernels
from diskhop.nn.kernels.philox_stream import KEY_STEPS, MULTIPLIERS, NUM_ROUNDS, Stream, signed

_LOW = 0xFFFFFFFF


def bounded_words(stream: Stream, first: int, num_blocks: int, high: int, device: torch.device) -> Tensor:
    """Return draws below `high` from each 32-bit word of blocks, int64 (8 * num_blocks); -1 where it is rejected.

    first: number of the first block. high: from 2 to 2^31.
    """
    if runs_kernels(torch.empty(0, device=device)):
        from diskhop.nn.kernels.triton_philox import bounded_words_by_triton

        return bounded_words_by_triton(stream, first, num_blocks, high, device)
    return bounded_words_reference(stream, first, num_blocks, high, device)


def bounded_words_reference(stream: Stream, first: int, num_blocks: int, high: int, device: torch.device) -> Tensor:
    """Compute bounded_words() by torch alone."""
    numbers = torch.arange(first + 1, first + 1 + num_blocks, device=device)
    words = [numbers + signed(stream.counter[0])]
    words += [torch.full_like(numbers, signed(each)) for each in stream.counter[1:]]
    key = list(stream.key)
    for _ in range(NUM_ROUNDS):
        high_first, low_first = _product(words[0], MULTIPLIERS[0])
        high_second, low_second = _product(words[2], MULTIPLIERS[1])
        words = [
            high_second ^ words[1] ^ signed(key[0]),
            low_second,
            high_first ^ words[3] ^ signed(key[1]),
            low_first,
        ]
        key = [part + step for part, step in zip(key, KEY_STEPS, strict=True)]
    halves = torch.stack([half for word in words for half in (word & _LOW, upper(word))], 1).view(-1)
    products = halves * high
    return torch.where((products & _LOW) >= (1 << 32) % high, products >> 32, -1)


def upper(word: Tensor) -> Tensor:
    """Return the upper 32 bits of int64 words as numbers that are not negative."""
    return (word >> 32) & _LOW


def _product(word: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """Return the upper and the lower 64 bits of unsigned products."""
    low, high = word & _LOW, upper(word)
    factor_low, factor_high = factor & _LOW, factor >> 32
    first, second = high * factor_low, low * factor_high
    middle = upper(low * factor_low) + (first & _LOW) + (second & _LOW)
    return high * factor_high + upper(first) + upper(second) + upper(middle), word * signed(factor)
