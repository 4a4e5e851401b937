"""The order in which an epoch visits rows: as they lie, each by itself in random order, or in chunks (PP-GNN, 4.2).

`rows` is SGD with random reshuffling (SGD-RR). `chunks` is chunk reshuffling (SGD-CR): runs of chunk_rows rows that lie
together, in random order; chunks of one row are SGD-RR. What is ordered are *positions* in the set of rows of a pass.
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
    """Positions 0 .. num_rows - 1, each once. chunks: int64, the order of chunks of chunk_rows; None: as they lie."""

    num_rows: int
    chunk_rows: int
    chunks: NDArray[np.int64] | None

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""
        return 0 if self.chunks is None else self.chunks.nbytes

    def positions(self, start: int, stop: int) -> NDArray[np.int64]:
        """int64: those that come at places start to stop of the epoch."""
        places = np.arange(start, min(stop, self.num_rows))
        if self.chunks is None:
            return places
        short_rows = self.num_rows % self.chunk_rows
        if short_rows:
            # What comes after the one short chunk comes as if that were whole.
            short = int(np.flatnonzero(self.chunks == len(self.chunks) - 1)[0])
            places[places >= short * self.chunk_rows + short_rows] += self.chunk_rows - short_rows
        whole, within = np.divmod(places, self.chunk_rows)
        found: NDArray[np.int64] = self.chunks[whole] * self.chunk_rows + within
        return found


def row_order(num_rows: int, shuffle: str, *, chunk_rows: int, seed: int, epoch: int) -> RowOrder:
    """The order of an epoch, by (seed, epoch) alone. chunk_rows: of `chunks`.

    Raises ConfigError for an unknown shuffle and chunks of less than a row.
    """
    _check(shuffle, chunk_rows)
    if shuffle == "none":
        return RowOrder(num_rows, 1, None)
    chunk_rows = 1 if shuffle == "rows" else chunk_rows
    num_chunks = -(-num_rows // chunk_rows)
    return RowOrder(num_rows, chunk_rows, keyed_permutation(num_chunks, seed, int(Purpose.TRAIN), epoch))


def order_bytes(num_rows: int, shuffle: str, chunk_rows: int) -> int:
    """Memory that row_order() will take. Raises as it does."""
    _check(shuffle, chunk_rows)
    return {"none": 0, "rows": 8 * num_rows, "chunks": 8 * -(-num_rows // chunk_rows)}[shuffle]


def _check(shuffle: str, chunk_rows: int) -> None:
    if shuffle not in SHUFFLES:
        raise ConfigError(f"shuffle '{shuffle}' is unknown; choose one of {', '.join(SHUFFLES)}")
    if chunk_rows < 1:
        raise ConfigError(f"--chunk-rows must be at least 1, got {chunk_rows}")
