"""How the pipeline's threads hand batches on: bounded, in order or as they come, and closed in one place.

`OrderedChannel`: items come in any order and leave in order of their index. `ArrivalChannel`: they leave as they came.
`ByteGate`: bounds the bytes between two points. All wake everyone when closed; an error given to `close` is raised to
whoever waits.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class ClosedError(Exception):
    """The channel or gate was closed while somebody waited, without an error."""


class _Closable:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._closed = False
        self._error: BaseException | None = None

    def close(self, error: BaseException | None = None) -> None:
        """Wake everyone who waits; the first error given is what they raise."""
        with self._changed:
            self._closed = True
            self._error = self._error or error
            self._changed.notify_all()

    def require_open(self) -> None:
        """Raise ClosedError once it is closed, whatever the reason: that is told to who waits."""
        with self._changed:
            if self._closed:
                raise ClosedError

    def _raise_if_closed(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closed:
            raise ClosedError


class OrderedChannel(_Closable, Generic[ItemT]):
    """Holds items first to first + capacity - 1, where first is the index that leaves next."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._first = 0
        self._items: dict[int, ItemT] = {}

    def close(self, error: BaseException | None = None) -> None:
        """See _Closable. Nobody gets what is still here: let it go."""
        super().close(error)
        with self._changed:
            self._items.clear()

    def put(self, index: int, item: ItemT) -> None:
        """Wait until there is room for this index. Raises ClosedError, or the error given to close()."""
        with self._changed:
            while not self._closed and index >= self._first + self._capacity:
                self._changed.wait()
            self._raise_if_closed()
            self._items[index] = item
            self._changed.notify_all()

    def get(self) -> ItemT:
        """Wait for the next item in order. Raises ClosedError, or the error given to close()."""
        with self._changed:
            while not self._closed and self._first not in self._items:
                self._changed.wait()
            self._raise_if_closed()
            item = self._items.pop(self._first)
            self._first += 1
            self._changed.notify_all()
            return item


class ArrivalChannel(_Closable, Generic[ItemT]):
    """Holds up to `capacity` items; the first that came leaves first, whatever its index."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._items: deque[ItemT] = deque()

    def close(self, error: BaseException | None = None) -> None:
        """See OrderedChannel."""
        super().close(error)
        with self._changed:
            self._items.clear()

    def put(self, _index: int, item: ItemT) -> None:
        """Wait until there is room. Raises ClosedError, or the error given to close()."""
        with self._changed:
            while not self._closed and len(self._items) >= self._capacity:
                self._changed.wait()
            self._raise_if_closed()
            self._items.append(item)
            self._changed.notify_all()

    def get(self) -> ItemT:
        """Wait for the next item. Raises ClosedError, or the error given to close()."""
        with self._changed:
            while not self._closed and not self._items:
                self._changed.wait()
            self._raise_if_closed()
            item = self._items.popleft()
            self._changed.notify_all()
            return item


class ByteGate(_Closable):
    """Lets bytes through up to a limit; more than the limit at once waits until nothing is inside, and goes alone."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__()
        self._limit_bytes = limit_bytes
        self._inside_bytes = 0

    def enter(self, num_bytes: int) -> None:
        """Wait for room. Raises ClosedError, or the error given to close()."""
        with self._changed:
            while not self._closed and self._inside_bytes and self._inside_bytes + num_bytes > self._limit_bytes:
                self._changed.wait()
            self._raise_if_closed()
            self._inside_bytes += num_bytes

    def leave(self, num_bytes: int) -> None:
        """Make room again."""
        with self._changed:
            self._inside_bytes -= num_bytes
            self._changed.notify_all()
