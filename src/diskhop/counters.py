"""What a run did, counted: rows, reads, bytes and seconds. Values that are returned and added, never globals."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True, kw_only=True)
class FetchCounts:
    """What bringing rows to the model took.

    rows_requested: rows asked for; rows_hit: of those, served from memory; rows_shared: those that another batch was
    reading already; rows_filled: read into a cache before a batch asked for them; reads: requests to the device;
    bytes_needed: bytes of the requested rows; bytes_read: bytes asked of the device; bytes_copied: bytes that the CPU
    moved between buffers; seconds: of reading and copying, where batches share them each its part. packing_seconds,
    packing_bytes_read, packing_bytes_written: of writing rows together as it trains, of which each batch has its part.
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

    def add(self, other: FetchCounts) -> None:
        """Add another's counts to these."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def add_reads(self, reads: int, bytes_read: int, bytes_copied: int, seconds: float = 0.0) -> None:
        """Add what a RowReader's read() or a ScanTicket's wait() returned."""
        self.reads += reads
        self.bytes_read += bytes_read
        self.bytes_copied += bytes_copied
        self.seconds += seconds


@dataclass(slots=True, kw_only=True)
class PackingCounts:
    """What writing the rows of batches together took, in bytes and seconds."""

    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
