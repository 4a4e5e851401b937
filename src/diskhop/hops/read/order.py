"""The order in which an epoch visits rows: stored order, shuffled rows, or shuffled chunks (PP-GNN, section 4.2).

`rows` is SGD with random reshuffling (SGD-RR). `chunks` is chunk reshuffling (SGD-CR): runs of chunk_rows consecutive
rows in random order; chunks of one row are SGD-RR. The order is one of *positions* in the set of rows of a pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diskhop._native import keyed_permutation
from diskhop.errors import ConfigError
from diskhop.protocols import Purpose

Shuffle = Literal["none", "rows", "chunks"]
SHUFFLES: tuple[Shuffle, ...] = ("none", "rows", "chunks")


@dataclass(frozen=True, slots=True, eq=False)
class RowOrder:
    """An order of the positions 0 .. num_rows - 1.

    num_rows: number of positions.
    chunk_rows: positions per chunk.
    chunks: int64, the order of chunks; None for ascending positions.
    """

    num_rows: int
    chunk_rows: int
    chunks: NDArray[np.int64] | None

    @property
    def num_bytes(self) -> int:
        """Memory of the order."""
        return 0 if self.chunks is None else self.chunks.nbytes

    def positions(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the positions at places start to stop of the epoch, int64."""
        places = np.arange(start, min(stop, self.num_rows))
        if self.chunks is None:
            return places
        short_rows = self.num_rows % self.chunk_rows
        if short_rows:
            # Places after the only short chunk are computed as if that chunk were whole.
            short = int(np.flatnonzero(self.chunks == len(self.chunks) - 1)[0])
            places[places >= short * self.chunk_rows + short_rows] += self.chunk_rows - short_rows
        whole, within = np.divmod(places, self.chunk_rows)
        found: NDArray[np.int64] = self.chunks[whole] * self.chunk_rows + within
        return found


def row_order(num_rows: int, shuffle: str, *, chunk_rows: int, seed: int, epoch: int) -> RowOrder:
    """Return the order of an epoch, which depends on (seed, epoch) only. chunk_rows: rows per chunk of `chunks`.

    Raises ConfigError for an unknown shuffle, or chunks of less than one row.
    """
    _check(shuffle, chunk_rows)
    if shuffle == "none":
        return RowOrder(num_rows, 1, None)
    chunk_rows = 1 if shuffle == "rows" else chunk_rows
    num_chunks = -(-num_rows // chunk_rows)
    return RowOrder(num_rows, chunk_rows, keyed_permutation(num_chunks, seed, int(Purpose.TRAIN), epoch))


def order_bytes(num_rows: int, shuffle: str, chunk_rows: int) -> int:
    """Return the memory of row_order(). Raises the same errors."""
    _check(shuffle, chunk_rows)
    return {"none": 0, "rows": 8 * num_rows, "chunks": 8 * -(-num_rows // chunk_rows)}[shuffle]


def _check(shuffle: str, chunk_rows: int) -> None:
    if shuffle not in SHUFFLES:
        raise ConfigError(f"shuffle '{shuffle}' is unknown; choose one of {', '.join(SHUFFLES)}")
    if chunk_rows < 1:
        raise ConfigError(f"--chunk-rows must be at least 1, got {chunk_rows}")
