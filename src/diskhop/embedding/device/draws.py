"""Draws of a run on its device: the order of edges and the negatives, bit-identical to those in memory.

Orders are those of partitions.edges.shuffled(), negatives those of NegativeSampler.draw().
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from diskhop.embedding.step.negatives import NegativeSampler
from diskhop.nn.kernels.philox import bounded_words
from diskhop.nn.kernels.philox_stream import WORDS_PER_BLOCK, Stream, signed
from diskhop.protocols import Purpose

# Ranges below this fit the products of bounded_words().
MOST_ROWS = 1 << 31
# Rejected draws are replaced by the next ones: spare words drawn at once, as a share and as a number.
_SPARE_SHARE, _SPARE_WORDS = 1 / 64, 64


class DeviceDraws:
    """Draws integers as numpy.random.Generator(Philox(...)).integers() does, on a device."""

    def __init__(self, stream: Stream, device: torch.device) -> None:
        self._stream = stream
        self._device = device
        self._position = 0  # in the stream, in words of 32 bits

    def integers(self, high: int, size: tuple[int, ...]) -> Tensor:
        """Return integers from 0 to high - 1, int64 (size). high: from 1 to MOST_ROWS."""
        assert 1 <= high <= MOST_ROWS, "no device has memory for more rows"
        count = int(np.prod(size))
        if high == 1:
            return torch.zeros(size, dtype=torch.int64, device=self._device)
        rejected_share = (1 << 32) % high / (1 << 32)
        num_words = count
        if rejected_share:
            num_words = int(count * (1 + _SPARE_SHARE) / (1 - rejected_share)) + _SPARE_WORDS
        while True:
            first, skipped = divmod(self._position, WORDS_PER_BLOCK)
            num_blocks = -(-(skipped + num_words) // WORDS_PER_BLOCK)
            drawn = bounded_words(self._stream, first, num_blocks, high, self._device)[skipped:]
            if not rejected_share:
                self._position += count
                return drawn[:count].view(size)
            places = (drawn >= 0).nonzero().view(-1)[:count]
            if len(places) == count:
                self._position += int(places[-1]) + 1 if count else 0
                return drawn[places].view(size)
            num_words *= 2


def negative_draws(seed: int, key: tuple[int, int], device: torch.device) -> DeviceDraws:
    """Return the draws of a batch's negatives. key: epoch and number of the batch."""
    return DeviceDraws(Stream((seed, int(Purpose.NEGATIVES)), (0, 0, *key)), device)


class DeviceNegatives:
    """Draws negatives on a device as a sampler does in memory. base: first row of each partition in the slots."""

    def __init__(self, sampler: NegativeSampler, base: Callable[[int], int], device: torch.device) -> None:
        self._sampler = sampler
        self._device = device
        self._ends = torch.from_numpy(sampler.ends).to(device)
        self._offsets = torch.from_numpy(sampler.offsets(base)).to(device)

    def draw(self, shape: tuple[int, int, int], sources: Tensor, destinations: Tensor, key: tuple[int, int]) -> Tensor:
        """Return rows of negatives, int64 (2, chunks, negatives). sources, destinations: rows of the batch's edges."""
        sampler, draws = self._sampler, negative_draws(self._sampler.seed, key, self._device)
        positions = draws.integers(int(sampler.ends[-1]), shape)
        rows = positions + self._offsets[torch.searchsorted(self._ends, positions, right=True)]
        num_by_degree = sampler.num_by_degree(shape[2])
        if num_by_degree:
            chosen = draws.integers(len(sources), (*shape[:2], num_by_degree))
            rows[0, :, :num_by_degree] = destinations[chosen[0]]
            rows[1, :, :num_by_degree] = sources[chosen[1]]
        return rows


def device_order(num_edges: int, seed: int, epoch: int, phase: int, device: torch.device) -> Tensor:
    """Return the shuffled order of the edges of an epoch's phase, int64 (num_edges); see edges.shuffled()."""
    key = 0
    for part in (seed, int(Purpose.BATCH_ORDER), epoch << 32 | phase):
        key = int(_absorbed(signed(key), torch.tensor([signed(part)])))
    hashes = _absorbed(key, torch.arange(num_edges, device=device))
    # Hashes are unsigned and all different.
    return torch.argsort(hashes ^ signed(1 << 63))


def _absorbed(key: int, parts: Tensor) -> Tensor:
    """Add parts to a key: absorb() of the core's base/random.hpp, on int64 words that wrap."""
    word = (parts ^ key) + signed(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ _shifted(word, shift)) * signed(factor)
    return word ^ _shifted(word, 31)


def _shifted(word: Tensor, shift: int) -> Tensor:
    """Shift int64 words to the right as unsigned ones."""
    return (word >> shift) & ((1 << (64 - shift)) - 1)
