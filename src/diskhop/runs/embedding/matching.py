"""Matching the nodes or relations of two graphs by their names, or by their ids where neither has names."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.names import Names
from diskhop.errors import ConfigError

# Memory per node while names are matched.
BYTES_PER_NODE = 56


def match(new: Names, old: Names, what: str) -> NDArray[np.int64]:
    """Return the old number of each new name, -1 for a new one; where graphs have no names, ids are compared.

    what: the option that needs it, for errors. Raises ConfigError if only one of the graphs has names.
    """
    if new.are_given != old.are_given:
        raise ConfigError(
            f"{what}: one of the graphs has names and the other has none; import both with names, or both without"
        )
    if not new.are_given:
        wanted, known = new.ids(), old.ids()
        return np.where(np.isin(wanted, known), np.searchsorted(known, wanted), -1)
    hashes = _hashes(old)
    order = np.argsort(hashes[:, 0], kind="stable")
    new_hashes = _hashes(new)
    found = order[np.minimum(np.searchsorted(hashes[order, 0], new_hashes[:, 0]), len(order) - 1)]
    return np.where((hashes[found] == new_hashes).all(axis=1), found, -1)


def _hashes(names: Names) -> NDArray[np.uint64]:
    """Return 16 bytes per name, (names, 2), which makes collisions as good as impossible."""
    hashes = np.empty((len(names), 2), np.uint64)
    for number, name in enumerate(names):
        hashes[number] = np.frombuffer(blake2b(name.encode(), digest_size=16).digest(), np.uint64)
    return hashes
