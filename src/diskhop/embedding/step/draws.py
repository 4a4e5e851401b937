"""Random generators of an embedding run, one per purpose. Negatives have their own; see NegativeSampler."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop._native import permute_ids


class Draw(IntEnum):
    """Purpose of a generator."""

    PARTITION = 0
    RELATION = 1
    DROPOUT = 2
    CANDIDATES = 3


def generator(seed: int, draw: Draw, *numbers: int) -> torch.Generator:
    """Return a generator seeded by the seed, the purpose and numbers (epoch, batch, partition ...) only."""
    return torch.Generator().manual_seed(_seed_of(seed, draw, *numbers))


def draw_candidates(num_nodes: int, candidates: int, seed: int) -> NDArray[np.int64]:
    """Draw the places of candidates, (2, candidates), each place once: first for destinations, then for sources.

    candidates: at most num_nodes.
    """
    drawn = np.tile(np.arange(candidates), (2, 1))
    for side, places in enumerate(drawn):
        # The start of a random permutation, which needs no table of all nodes.
        permute_ids(num_nodes, _seed_of(seed, Draw.CANDIDATES, side), "ids", places)
    return drawn


def _seed_of(seed: int, draw: Draw, *numbers: int) -> int:
    words = np.random.SeedSequence([seed, draw, *numbers]).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))
