"""Memory of a partition, in two parts that follow one another in its file, and their checksums."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PAGE_BYTES = 4096
WORD = 1 << 64
# Read at once where a partition is only streamed.
PIECE_BYTES = 4 << 20


class LoadedPartition(NamedTuple):
    """A partition's bytes in memory, aligned for direct I/O.

    values: bytes of the embeddings.
    squares: bytes of Adagrad's sums of squares.
    """

    values: NDArray[np.uint8]
    squares: NDArray[np.uint8]


class ContentSums(NamedTuple):
    """Checksums of a partition: of the embeddings, and of Adagrad's sums of squares."""

    values: int
    squares: int
