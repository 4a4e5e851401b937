"""Counters of a run: rows, reads, bytes and seconds. They are returned and added up, never global."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple


@dataclass(slots=True, kw_only=True)
class FetchCounts:
    """Counts of fetching feature rows for the model.

    rows_requested: rows that batches requested.
    rows_hit: requested rows served from memory.
    rows_shared: requested rows that another batch was already reading.
    rows_filled: rows read into a cache before a batch requested them.
    reads: read requests to the disk.
    bytes_needed: bytes of the requested rows.
    bytes_read: bytes read from disk.
    bytes_copied: bytes that the CPU moved between buffers.
    seconds: time of reading and copying; batches that share it are charged their part.
    packing_seconds: time of packing rows during training, charged to batches in parts.
    packing_bytes_read: bytes read for packing, charged likewise.
    packing_bytes_written: bytes written by packing, charged likewise.
    transfer_seconds: time of the thread that copies batches to a device.
    """

    rows_requested: int = 0
    rows_hit: int = 0
    rows_shared: int = 0
    rows_filled: int = 0
    reads: int = 0
    bytes_needed: int = 0
    bytes_read: int = 0
    bytes_copied: int = 0
    seconds: float = 0.0
    packing_seconds: float = 0.0
    packing_bytes_read: int = 0
    packing_bytes_written: int = 0
    transfer_seconds: float = 0.0

    def add(self, other: FetchCounts) -> None:
        """Add other counts to these."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def add_reads(self, reads: int, bytes_read: int, bytes_copied: int, seconds: float = 0.0) -> None:
        """Add the counts that RowReader.read() or ScanTicket.wait() returned."""
        self.reads += reads
        self.bytes_read += bytes_read
        self.bytes_copied += bytes_copied
        self.seconds += seconds


class WaitSeconds(NamedTuple):
    """Seconds that the model waited for a batch, by what the batch lacked meanwhile.

    sampling: its neighbours, which are drawn, and planned for where a store looks ahead.
    reading: its rows of features.
    transfer: its copy to a device.
    """

    sampling: float = 0.0
    reading: float = 0.0
    transfer: float = 0.0

    @classmethod
    def between(cls, asked: float, sampled: float, collected: float, delivered: float) -> WaitSeconds:
        """Divide the time from asking for a batch to its delivery by when it was sampled, and its rows collected."""
        sampled = min(max(sampled, asked), delivered)
        collected = min(max(collected, sampled), delivered)
        return cls(sampled - asked, collected - sampled, delivered - collected)


@dataclass(slots=True, kw_only=True)
class PackingCounts:
    """Counts of packing the rows of batches.

    bytes_read: bytes read from disk.
    bytes_written: bytes written to disk.
    seconds: elapsed time.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
