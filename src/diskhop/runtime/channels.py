"""Bounded channels and gates between the pipeline's threads.

An `OrderedChannel` delivers items in order of their index, an `ArrivalChannel` in order of arrival. A `ByteGate` bounds
the bytes between two points. `Turns` shares out numbers. In a `Phase` threads may do some work. close() wakes every
waiting thread; an error given to it is raised there.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class ClosedError(Exception):
    """The channel or gate was closed without an error while a thread waited."""


class _Closable:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._closed = False
        self._error: BaseException | None = None

    def close(self, error: BaseException | None = None) -> None:
        """Wake every waiting thread; it raises the first error that was given."""
        with self._changed:
            self._closed = True
            self._error = self._error or error
            self._changed.notify_all()

    def require_open(self) -> None:
        """Raise ClosedError if closed, whatever the reason; waiting threads get the error itself."""
        with self._changed:
            if self._closed:
                raise ClosedError

    def _raise_if_closed(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closed:
            raise ClosedError


class Channel(_Closable, ABC, Generic[ItemT]):
    """A bounded queue of items from one stage to the next."""

    def close(self, error: BaseException | None = None) -> None:
        """Wake every waiting thread and drop the items, so that their memory is freed."""
        super().close(error)
        with self._changed:
            self._clear()

    def put(self, index: int, item: ItemT) -> None:
        """Wait for space and add an item. Raises ClosedError, or the error given to close()."""
        with self._changed:
            while not self._closed and not self._accepts(index):
                self._changed.wait()
            self._raise_if_closed()
            self._add(index, item)
            self._changed.notify_all()

    def get(self) -> ItemT:
        """Wait for the next item and remove it. Raises ClosedError, or the error given to close()."""
        with self._changed:
            while not self._closed and not self._has_next():
                self._changed.wait()
            self._raise_if_closed()
            item = self._take()
            self._changed.notify_all()
            return item

    @abstractmethod
    def _accepts(self, index: int) -> bool: ...

    @abstractmethod
    def _has_next(self) -> bool: ...

    @abstractmethod
    def _add(self, index: int, item: ItemT) -> None: ...

    @abstractmethod
    def _take(self) -> ItemT: ...

    @abstractmethod
    def _clear(self) -> None: ...


class OrderedChannel(Channel[ItemT]):
    """Delivers items by index. It accepts indexes first to first + capacity - 1; `first` is delivered next."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._first = 0
        self._items: dict[int, ItemT] = {}

    def _accepts(self, index: int) -> bool:
        return index < self._first + self._capacity

    def _has_next(self) -> bool:
        return self._first in self._items

    def _add(self, index: int, item: ItemT) -> None:
        self._items[index] = item

    def _take(self) -> ItemT:
        item = self._items.pop(self._first)
        self._first += 1
        return item

    def _clear(self) -> None:
        self._items.clear()


class ArrivalChannel(Channel[ItemT]):
    """Delivers items in order of arrival, whatever their index. It stores up to `capacity` items."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._items: deque[ItemT] = deque()

    def _accepts(self, _index: int) -> bool:
        return len(self._items) < self._capacity

    def _has_next(self) -> bool:
        return bool(self._items)

    def _add(self, _index: int, item: ItemT) -> None:
        self._items.append(item)

    def _take(self) -> ItemT:
        return self._items.popleft()

    def _clear(self) -> None:
        self._items.clear()


class ByteGate(_Closable):
    """Admits bytes up to a limit. More than the limit at once waits until the gate is empty and passes alone."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__()
        self._limit_bytes = limit_bytes
        self._inside_bytes = 0

    def enter(self, num_bytes: int) -> None:
        """Wait until the bytes fit. Raises ClosedError, or the error given to close()."""
        with self._changed:
            while not self._closed and self._inside_bytes and self._inside_bytes + num_bytes > self._limit_bytes:
                self._changed.wait()
            self._raise_if_closed()
            self._inside_bytes += num_bytes

    def leave(self, num_bytes: int) -> None:
        """Return bytes to the gate."""
        with self._changed:
            self._inside_bytes -= num_bytes
            self._changed.notify_all()


class Phase(_Closable):
    """A time in which threads may do some work. It is over at first, and may begin and end repeatedly."""

    def __init__(self) -> None:
        super().__init__()
        self._is_on = False
        self._num_inside = 0

    def begin(self) -> None:
        """Let threads work."""
        with self._changed:
            self._is_on = True
            self._changed.notify_all()

    def end(self) -> None:
        """Let no more threads begin to work, and wait for those that do. Raises as work()."""
        with self._changed:
            self._is_on = False
            while not self._closed and self._num_inside:
                self._changed.wait()
            self._raise_if_closed()

    @contextmanager
    def work(self) -> Iterator[None]:
        """Work, once the phase is on. Raises ClosedError, or the error given to close()."""
        with self._changed:
            while not self._closed and not self._is_on:
                self._changed.wait()
            self._raise_if_closed()
            self._num_inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_inside -= 1
                self._changed.notify_all()


class Turns:
    """The numbers 0 to count - 1, each given once to one of the threads that iterate over them."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._left = iter(range(count))

    def __iter__(self) -> Turns:
        return self

    def __next__(self) -> int:
        with self._lock:
            return next(self._left)
