"""Memory of arrays that stay from the first batch to the last: this process's own, or one copy for a whole machine.

A *segment* is memory that several processes map: the first one makes it (memfd), the others open it through /proc.
Each fills a part. A segment has no name, so that none is left when processes end, however they do.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from diskhop._native import BufferPool
from diskhop.errors import ConfigError

T = TypeVar("T")
Bytes = NDArray[np.uint8]
# Brings in all pages of a map at once, for reading; mmap has no name for it. Older kernels do not know it.
_MADV_POPULATE_READ = 22


@dataclass(frozen=True, slots=True)
class Part:
    """The part of an array that one of `count` processes fills."""

    index: int
    count: int

    def of(self, num_items: int) -> slice:
        """Return this process's share of the array's items."""
        return slice(num_items * self.index // self.count, num_items * (self.index + 1) // self.count)

    @property
    def is_first(self) -> bool:
        """Whether this process fills what is not divided."""
        return self.index == 0


Fill = Callable[[Bytes, Part], None]


class Peers(Protocol):
    """The processes of this machine that share memory. All of them make the same calls, in the same order."""

    @property
    def index(self) -> int:
        """Number of this process, from 0."""

    @property
    def count(self) -> int:
        """Number of processes."""

    def first(self, make: Callable[[], T]) -> T:
        """Run make() in process 0 and return its value in all of them; if it raises, all raise its error."""

    def every(self, do: Callable[[], T]) -> T:
        """Run do() in each process and return its own value, once all are done; if one raises, all raise an error."""


class ResidentMemory(Protocol):
    """Makes arrays that stay."""

    @property
    def num_processes(self) -> int:
        """Processes that share an array."""

    def make(self, num_bytes: int, fill: Fill, *, for_device: bool = False) -> Bytes:
        """Return num_bytes bytes, filled.

        fill: called with the array and the part to fill, in every process. for_device: whether a GPU will read them.
        """

    def keep(self, read: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """Return the array that read() returns, which is called in one process."""


class OwnMemory:
    """Arrays of this process alone, on huge pages."""

    num_processes = 1

    def make(self, num_bytes: int, fill: Fill, *, for_device: bool = False) -> Bytes:
        """See ResidentMemory."""
        content: Bytes = BufferPool(0).take(num_bytes)
        fill(content, Part(0, 1))
        return content

    def keep(self, read: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """See ResidentMemory."""
        return read()


class SharedMemory:
    """Arrays of which a machine has one copy, whatever the number of its processes.

    A write to a finished array changes the copy of that process alone; but what a GPU will read is one copy for all,
    and must not be written to. Pages are huge where the kernel allows it for shared memory (shmem_enabled in
    /sys/kernel/mm/transparent_hugepage).
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    @property
    def num_processes(self) -> int:
        """See ResidentMemory."""
        return self._peers.count

    def first(self, make: Callable[[], T]) -> T:
        """Run make() in process 0 and return its value in all of them; if it raises, all raise its error."""
        return self._peers.first(make)

    def make(self, num_bytes: int, fill: Fill, *, for_device: bool = False) -> Bytes:
        """See ResidentMemory. Raises the error of any process in all of them."""
        if num_bytes == 0:
            return np.empty(0, np.uint8)
        peers, created = self._peers, contextlib.ExitStack()

        def create() -> str:
            segment = os.memfd_create("diskhop", os.MFD_CLOEXEC)
            created.callback(os.close, segment)
            os.ftruncate(segment, num_bytes)
            return f"/proc/{os.getpid()}/fd/{segment}"

        with created:
            place = peers.first(create)
            segment = peers.every(lambda: _open(place))
            try:
                peers.every(lambda: _fill(segment, num_bytes, fill, Part(peers.index, peers.count)))
                # Pinning pages that are copied when they are written to copies them, in every process.
                kind = mmap.MAP_SHARED if for_device else mmap.MAP_PRIVATE
                return peers.every(lambda: _finished(segment, num_bytes, kind))
            finally:
                os.close(segment)

    def keep(self, read: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """See ResidentMemory."""
        found: list[NDArray[Any]] = []

        def describe() -> tuple[str, tuple[int, ...], int]:
            found.append(np.ascontiguousarray(read()))
            return found[0].dtype.str, found[0].shape, found[0].nbytes

        def fill(content: Bytes, part: Part) -> None:
            if part.is_first:
                content[:] = found[0].reshape(-1).view(np.uint8)

        dtype, shape, num_bytes = self._peers.first(describe)
        return self.make(num_bytes, fill).view(dtype).reshape(shape)


def _open(place: str) -> int:
    try:
        return os.open(place, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(
            f"{place}: memory of another process cannot be opened: {error.strerror}; processes that share memory must "
            "run as one user and see each other's /proc"
        ) from error


def _fill(segment: int, num_bytes: int, fill: Fill, part: Part) -> None:
    pages = mmap.mmap(segment, num_bytes)
    with contextlib.suppress(OSError):  # only advice
        pages.madvise(mmap.MADV_HUGEPAGE)
    fill(np.frombuffer(pages, np.uint8), part)


def _finished(segment: int, num_bytes: int, kind: int) -> Bytes:
    # Pages of a private map are shared until one is written to, which copies it.
    pages = mmap.mmap(segment, num_bytes, flags=kind)
    for advice in (mmap.MADV_HUGEPAGE, _MADV_POPULATE_READ):
        with contextlib.suppress(OSError):
            pages.madvise(advice)
    return np.frombuffer(pages, np.uint8)
