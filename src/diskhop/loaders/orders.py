"""Orders of the seeds of a pass that are not the loader's own: those of a sampler of torch, and single batches."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any

import numpy as np

from diskhop.config.options import require
from diskhop.errors import ConfigError
from diskhop.loaders.node_arrays import node_array
from diskhop.protocols import NodeIds


class SeedOrder:
    """The order that a sampler of torch gives the seeds of each pass; it may leave seeds out, and repeat some.

    sampler: yields the positions in input_nodes of each pass.
    num_seeds: number of seeds of the loader.
    shuffle: the loader's argument, which must be False.
    """

    def __init__(self, sampler: Any, num_seeds: int, *, shuffle: bool) -> None:
        if shuffle:
            raise ConfigError(
                "shuffle has no effect with a sampler, which has an order of its own; remove shuffle=True"
            )
        self._sampler: Iterable[int] = sampler
        self._sized: Sized = sampler
        self._num_seeds = num_seeds

    def __len__(self) -> int:
        """Number of seeds of a pass."""
        return len(self._sized)

    def draw(self) -> NodeIds:
        """Return the positions of the seeds of the next pass. Raises ConfigError."""
        positions = list(self._sampler)
        if len(positions) != len(self):
            raise ConfigError(
                f"sampler must yield as many positions as its length says, got {len(positions)} and {len(self)}; "
                "correct its __len__"
            )
        return checked_positions("sampler", positions, self._num_seeds)


def checked_positions(name: str, positions: Any, num_seeds: int) -> NodeIds:
    """Return positions in input_nodes as int64. Raises ConfigError for anything else. name: the argument."""
    chosen = node_array(name, positions)
    if chosen.dtype == np.bool_:
        raise ConfigError(f"{name} must be numbers, got a mask of booleans; pass numpy.flatnonzero({name})")
    is_known = len(chosen) > 0 and chosen.min() >= 0 and chosen.max() < num_seeds
    require(is_known, name, "positions in input_nodes", chosen.tolist(), f"the loader has {num_seeds} seed nodes")
    return chosen
