"""An order in which rows that the same batches ask for lie together: by MinHash (DiskGNN, section 5.1).

Two rows have equal hashes with a probability that is the share of batches that ask for both among those that ask for
either. A batch's rows then lie in few pages, above all those of batches that come early in a hash's permutation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from diskhop._native import keyed_permutation
from diskhop.protocols import NodeIds, Purpose

NEVER_ASKED_FOR = 2**32 - 1


def min_hashes(batches: Sequence[NodeIds], num_rows: int, num_hashes: int = 2, seed: int = 0) -> NDArray[np.uint32]:
    """Of each row and hash, the earliest place in a random permutation of a batch that asks for the row.

    batches: each the rows, 0 to num_rows - 1, that it asks for. Returns uint32 (num_hashes, num_rows), NEVER_ASKED_FOR
    for rows that no batch asks for.
    """
    hashes = np.full((num_hashes, num_rows), NEVER_ASKED_FOR, np.uint32)
    for number in range(num_hashes):
        permutation = keyed_permutation(len(batches), seed, int(Purpose.TRAIN), number)
        # Written from the last place to the first, what stays is the minimum.
        for place in reversed(range(len(batches))):
            hashes[number, batches[permutation[place]]] = place
    return hashes


def minhash_order(batches: Sequence[NodeIds], num_rows: int, seed: int = 0) -> NodeIds:
    """The rows by their first hash, then their second, then their id; int64 (num_rows)."""
    first, second = min_hashes(batches, num_rows, 2, seed).astype(np.uint64)
    return np.argsort(first << np.uint64(32) | second, kind="stable")
