"""Orders of the inputs of a pass that are not the loader's own: those of a sampler of torch, and single batches."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any

import numpy as np

from diskhop.config.options import require
from diskhop.errors import ConfigError
from diskhop.loaders.node_arrays import node_array
from diskhop.protocols import NodeIds


class SeedOrder:
    """The order that a sampler of torch gives the inputs of each pass; it may leave some out, and repeat others.

    sampler: yields the positions of each pass.
    num_inputs: number of inputs of the loader.
    given: argument of the inputs, and what they are, as ("input_nodes", "seed node").
    shuffle: the loader's argument, which must be False.
    """

    def __init__(self, sampler: Any, num_inputs: int, given: tuple[str, str], *, shuffle: bool) -> None:
        if shuffle:
            raise ConfigError(
                "shuffle has no effect with a sampler, which has an order of its own; remove shuffle=True"
            )
        self._sampler: Iterable[int] = sampler
        self._sized: Sized = sampler
        self._num_inputs = num_inputs
        self._given = given

    def __len__(self) -> int:
        """Number of inputs of a pass."""
        return len(self._sized)

    def draw(self) -> NodeIds:
        """Return the positions of the inputs of the next pass. Raises ConfigError."""
        positions = list(self._sampler)
        if len(positions) != len(self):
            raise ConfigError(
                f"sampler must yield as many positions as its length says, got {len(positions)} and {len(self)}; "
                "correct its __len__"
            )
        return checked_positions("sampler", positions, self._num_inputs, self._given)


def checked_positions(name: str, positions: Any, num_inputs: int, given: tuple[str, str]) -> NodeIds:
    """Return positions of inputs as int64. Raises ConfigError for anything else.

    name: the argument. given: argument of the inputs, and what they are.
    """
    chosen = node_array(name, positions)
    if chosen.dtype == np.bool_:
        raise ConfigError(f"{name} must be numbers, got a mask of booleans; pass numpy.flatnonzero({name})")
    is_known = len(chosen) > 0 and chosen.min() >= 0 and chosen.max() < num_inputs
    argument, what = given
    require(is_known, name, f"positions in {argument}", chosen.tolist(), f"the loader has {num_inputs} {what}s")
    return chosen
