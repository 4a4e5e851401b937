"""The cost of reads on one disk, as a function of their size and of the number in flight (the *depth*).

The *grid* holds measured seconds per read: the time that one read adds to a stream of such reads at a given depth. The
*additive law* summarises depths of 32 and more: seconds = overhead + bytes / bandwidth. Pure functions, no I/O.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np

from diskhop.errors import FormatError

GRID_BYTES = (512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
GRID_DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128)
LAW_DEPTH = 32

# A slow NVMe disk. On a faster one, reads are then merged across slightly too small gaps.
_ASSUMED_OVERHEAD_SECONDS = 10.5e-6
_ASSUMED_BYTES_PER_SECOND = 2e9
_ASSUMED_LATENCY_SECONDS = 100e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskModel:
    """The cost of reads on one disk, through one engine.

    source: whether the figures were measured or assumed.
    note: how they were measured, or why they are assumed.
    engine: uring or threads.
    direct: whether the reads bypassed the page cache (direct I/O).
    overhead_seconds: fixed cost per read in the additive law.
    bytes_per_second: bandwidth in the additive law.
    read_bytes: read sizes of the grid, ascending.
    read_depths: depths of the grid, ascending.
    read_seconds: [i][j] is seconds per read of read_bytes[i] at depth read_depths[j].
    sequential_read_bytes_per_second: bandwidth of consecutive 1-MiB reads.
    sequential_write_bytes_per_second: bandwidth of consecutive 1-MiB writes.
    """

    source: Literal["measured", "assumed"]
    note: str
    engine: str
    direct: bool
    overhead_seconds: float
    bytes_per_second: float
    read_bytes: tuple[int, ...]
    read_depths: tuple[int, ...]
    read_seconds: tuple[tuple[float, ...], ...]
    sequential_read_bytes_per_second: float
    sequential_write_bytes_per_second: float

    @property
    def break_even_gap_bytes(self) -> int:
        """Bytes that take as long to read as one more request: merging reads across a smaller gap is cheaper."""
        return round(self.overhead_seconds * self.bytes_per_second)

    def sequential_seconds(self, bytes_read: int, bytes_written: int) -> float:
        """Predict the seconds of large consecutive reads and writes, one after the other."""
        read_seconds = bytes_read / self.sequential_read_bytes_per_second
        return read_seconds + bytes_written / self.sequential_write_bytes_per_second

    def predict_seconds(self, num_bytes: int, depth: int) -> float:
        """Predict the seconds that one read of this size adds to a stream of them at this depth.

        Sizes are interpolated linearly, as in the additive law, and extrapolated beyond the largest; smaller sizes cost
        as much as the smallest. Depths are interpolated by a power law; outside the grid the nearest depth counts.
        """
        at_depths = [self._seconds_at(num_bytes, column) for column in range(len(self.read_depths))]
        low, high, share = _bracket([math.log(known) for known in self.read_depths], math.log(depth))
        share = min(max(share, 0.0), 1.0)
        return math.exp((1 - share) * math.log(at_depths[low]) + share * math.log(at_depths[high]))

    def _seconds_at(self, num_bytes: int, column: int) -> float:
        low, high, share = _bracket(self.read_bytes, max(num_bytes, self.read_bytes[0]))
        below, above = self.read_seconds[low][column], self.read_seconds[high][column]
        return max(below + share * (above - below), min(below, above))

    def shared_by(self, num_processes: int) -> Self:
        """Return the model of the disk as each of several processes has it while all of them read."""
        if num_processes == 1:
            return self
        seconds = tuple(
            tuple(num_processes * self.predict_seconds(size, num_processes * depth) for depth in self.read_depths)
            for size in self.read_bytes
        )
        return replace(
            self,
            overhead_seconds=num_processes * self.overhead_seconds,
            bytes_per_second=self.bytes_per_second / num_processes,
            read_seconds=seconds,
            sequential_read_bytes_per_second=self.sequential_read_bytes_per_second / num_processes,
            sequential_write_bytes_per_second=self.sequential_write_bytes_per_second / num_processes,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the model as plain JSON data."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore a model from to_dict(). Raises FormatError if a figure is missing or malformed."""
        try:
            model = cls(
                source=stored["source"],
                note=str(stored["note"]),
                engine=str(stored["engine"]),
                direct=bool(stored["direct"]),
                overhead_seconds=float(stored["overhead_seconds"]),
                bytes_per_second=float(stored["bytes_per_second"]),
                read_bytes=tuple(int(size) for size in stored["read_bytes"]),
                read_depths=tuple(int(depth) for depth in stored["read_depths"]),
                read_seconds=tuple(tuple(float(seconds) for seconds in row) for row in stored["read_seconds"]),
                sequential_read_bytes_per_second=float(stored["sequential_read_bytes_per_second"]),
                sequential_write_bytes_per_second=float(stored["sequential_write_bytes_per_second"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"disk model: malformed ({error!r}); measure again with 'diskhop doctor'") from error
        if not model._is_sound():
            raise FormatError("disk model: a figure is missing, zero or negative; measure again with 'diskhop doctor'")
        return model

    def _is_sound(self) -> bool:
        rates = (
            self.bytes_per_second,
            self.sequential_read_bytes_per_second,
            self.sequential_write_bytes_per_second,
        )
        positive = [*rates, *self.read_bytes, *self.read_depths, *(s for row in self.read_seconds for s in row)]
        return (
            self.source in ("measured", "assumed")
            and self.overhead_seconds >= 0
            and all(0 < figure < math.inf for figure in positive)
            and len(self.read_bytes) > 1
            and len(self.read_depths) > 1
            and list(self.read_bytes) == sorted(set(self.read_bytes))
            and list(self.read_depths) == sorted(set(self.read_depths))
            and [len(row) for row in self.read_seconds] == [len(self.read_depths)] * len(self.read_bytes)
        )


def fit_additive_law(num_bytes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Fit seconds = overhead + num_bytes / bytes_per_second by least squares of the relative error.

    Returns (overhead, bytes_per_second); overhead is at least 0. The seconds must be more than 0.
    """
    sizes, times = np.asarray(num_bytes, np.float64), np.asarray(seconds, np.float64)
    # Every equation is divided by its time, so that small reads weigh as much as large ones.
    columns = np.stack([1 / times, sizes / times], axis=1)
    overhead, seconds_per_byte = np.linalg.lstsq(columns, np.ones(len(times)), rcond=None)[0]
    if overhead < 0 or seconds_per_byte <= 0:
        overhead = 0.0
        seconds_per_byte = columns[:, 1].sum() / (columns[:, 1] ** 2).sum()
    return float(overhead), float(1 / seconds_per_byte)


def fit_disk_model(
    read_seconds: Sequence[Sequence[float]],
    *,
    read_bytes: tuple[int, ...],
    read_depths: tuple[int, ...],
    sequential_read_bytes_per_second: float,
    sequential_write_bytes_per_second: float,
    engine: str,
    direct: bool,
    note: str,
) -> DiskModel:
    """Build the model of a measured grid; the additive law is fitted to depths of at least 32."""
    deep = [
        (size, row[column])
        for size, row in zip(read_bytes, read_seconds, strict=True)
        for column, depth in enumerate(read_depths)
        if depth >= LAW_DEPTH
    ]
    overhead_seconds, bytes_per_second = fit_additive_law([size for size, _ in deep], [time for _, time in deep])
    return DiskModel(
        source="measured",
        note=note,
        engine=engine,
        direct=direct,
        overhead_seconds=overhead_seconds,
        bytes_per_second=bytes_per_second,
        read_bytes=read_bytes,
        read_depths=read_depths,
        read_seconds=tuple(tuple(row) for row in read_seconds),
        sequential_read_bytes_per_second=sequential_read_bytes_per_second,
        sequential_write_bytes_per_second=sequential_write_bytes_per_second,
    )


def assumed_disk_model(engine: str = "threads", note: str = "nothing was measured") -> DiskModel:
    """Return the model of an ordinary NVMe disk, for disks that cannot be measured."""

    def seconds(num_bytes: int, depth: int) -> float:
        transfer_seconds = num_bytes / _ASSUMED_BYTES_PER_SECOND
        # Few concurrent reads are bound by the disk's latency, many by its throughput.
        return max(_ASSUMED_OVERHEAD_SECONDS + transfer_seconds, (_ASSUMED_LATENCY_SECONDS + transfer_seconds) / depth)

    return DiskModel(
        source="assumed",
        note=note,
        engine=engine,
        direct=True,
        overhead_seconds=_ASSUMED_OVERHEAD_SECONDS,
        bytes_per_second=_ASSUMED_BYTES_PER_SECOND,
        read_bytes=GRID_BYTES,
        read_depths=GRID_DEPTHS,
        read_seconds=tuple(tuple(seconds(size, depth) for depth in GRID_DEPTHS) for size in GRID_BYTES),
        sequential_read_bytes_per_second=_ASSUMED_BYTES_PER_SECOND,
        sequential_write_bytes_per_second=_ASSUMED_BYTES_PER_SECOND,
    )


def _bracket(known: Sequence[float], wanted: float) -> tuple[int, int, float]:
    """Return the indices of two neighbours in `known` (ascending), and where `wanted` lies between them (0 to 1)."""
    high = min(max(bisect_right(known, wanted), 1), len(known) - 1)
    low = high - 1
    return low, high, (wanted - known[low]) / (known[high] - known[low])
