"""Bytes that this process has moved, as the kernel counts them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_COUNTS = Path("/proc/self/io")


class Transfers(NamedTuple):
    """Bytes of this process so far, its threads included.

    bytes_read, bytes_written: from and to disks. call_bytes_read, call_bytes_written: of all calls that read and write,
    those that the page cache served included.
    """

    bytes_read: int
    bytes_written: int
    call_bytes_read: int
    call_bytes_written: int


def transfers() -> Transfers:
    """Return the counts of this moment; zeros where the kernel does not say."""
    try:
        counts = dict(line.split(": ") for line in _COUNTS.read_text(encoding="ascii").splitlines())
    except OSError:
        return Transfers(0, 0, 0, 0)
    return Transfers(*(int(counts[name]) for name in ("read_bytes", "write_bytes", "rchar", "wchar")))
