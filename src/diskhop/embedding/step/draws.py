"""What a run of embeddings draws, besides negatives: by a generator for each purpose, which depends on nothing else."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch
from numpy.typing import NDArray


class Draw(IntEnum):
    """What a generator is for."""

    PARTITION = 0
    RELATION = 1
    DROPOUT = 2
    CANDIDATES = 3


def generator(seed: int, draw: Draw, *numbers: int) -> torch.Generator:
    """A generator whose draws depend on nothing but these."""
    words = np.random.SeedSequence([seed, draw, *numbers]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(words[0] >> np.uint64(1)))


def draw_candidates(num_nodes: int, candidates: int, seed: int) -> NDArray[np.int64]:
    """Places that edges are ranked among, (2, candidates): of destinations and of sources."""
    return torch.randint(num_nodes, (2, candidates), generator=generator(seed, Draw.CANDIDATES)).numpy()
