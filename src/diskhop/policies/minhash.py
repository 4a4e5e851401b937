"""Placing rows that the same batches need next to each other, by MinHash (DiskGNN, section 5.1).

The probability that two rows have equal hashes is the number of batches that need both, divided by the number that need
either. Rows of a batch then lie in few pages, most of all for batches early in a hash's permutation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from diskhop._native import keyed_permutation
from diskhop.protocols import NodeIds, Purpose

NEVER_NEEDED = 2**32 - 1


def min_hashes(batches: Sequence[NodeIds], num_rows: int, num_hashes: int = 2, seed: int = 0) -> NDArray[np.uint32]:
    """Return for each hash and row the earliest place in a random permutation of the batches that need the row.

    batches: the rows of each batch, 0 to num_rows - 1.

    Returns uint32 (num_hashes, num_rows), NEVER_NEEDED for rows that no batch needs.
    """
    hashes = np.full((num_hashes, num_rows), NEVER_NEEDED, np.uint32)
    for number in range(num_hashes):
        permutation = keyed_permutation(len(batches), seed, int(Purpose.TRAIN), number)
        # Written from the last place to the first, so the minimum stays.
        for place in reversed(range(len(batches))):
            hashes[number, batches[permutation[place]]] = place
    return hashes


def minhash_order(batches: Sequence[NodeIds], num_rows: int, seed: int = 0) -> NodeIds:
    """Return the rows sorted by first hash, second hash and id, int64 (num_rows)."""
    first, second = min_hashes(batches, num_rows, 2, seed).astype(np.uint64)
    return np.argsort(first << np.uint64(32) | second, kind="stable")
