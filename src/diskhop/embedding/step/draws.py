"""Random generators of an embedding run, one per purpose. Negatives have their own; see NegativeSampler."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch
from numpy.typing import NDArray


class Draw(IntEnum):
    """Purpose of a generator."""

    PARTITION = 0
    RELATION = 1
    DROPOUT = 2
    CANDIDATES = 3


def generator(seed: int, draw: Draw, *numbers: int) -> torch.Generator:
    """Return a generator seeded by the seed, the purpose and numbers (epoch, batch, partition ...) only."""
    words = np.random.SeedSequence([seed, draw, *numbers]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(words[0] >> np.uint64(1)))


def draw_candidates(num_nodes: int, candidates: int, seed: int) -> NDArray[np.int64]:
    """Draw the places of candidates, (2, candidates): first for destinations, then for sources."""
    return torch.randint(num_nodes, (2, candidates), generator=generator(seed, Draw.CANDIDATES)).numpy()
