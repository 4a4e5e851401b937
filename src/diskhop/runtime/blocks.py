"""Blocks of rows, and functions mapped over them by several threads, for work that releases the GIL."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")
Result = TypeVar("Result")
# Between looks at whether calls have ended, after an error.
_WAIT_SECONDS = 0.005


def threads_that_fit(threads: int, most_bytes: int, needed_bytes: Callable[[int], int]) -> int:
    """Return the largest number of threads, at least 1, for which needed_bytes(number) is at most most_bytes."""
    return next((fewer for fewer in range(threads, 1, -1) if needed_bytes(fewer) <= most_bytes), 1)


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int, stop: Callable[[], None] = lambda: None
) -> Generator[Result]:
    """Yield function(item) for each item, in order. At most threads + 1 results exist or are in progress.

    An error is raised in order too, after waiting for the calls that are running, whatever the number of Ctrl-C. stop:
    called before that, so that they end soon.
    """
    if threads == 1:
        yield from map(function, items)
        return
    calls = _Calls(function)
    with ThreadPoolExecutor(threads) as executor:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(executor.submit(calls, item))
                if len(waiting) > threads:
                    yield _first_result(waiting)
            while waiting:
                yield _first_result(waiting)
        except BaseException:
            _end(calls, waiting, stop)
            raise


class _Calls(Generic[Item, Result]):
    """A function that several threads call until all calls are ended.

    It counts them itself: Ctrl-C may come when the executor has begun a call and not yet returned its future.
    """

    def __init__(self, function: Callable[[Item], Result]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._num_running = 0
        self._are_over = False

    def __call__(self, item: Item) -> Result:
        self._count(1)
        try:
            if self._are_over:  # read after it counts, so that end() waits for whatever has passed here
                raise CancelledError
            return self._function(item)
        finally:
            self._count(-1)

    def end(self) -> None:
        """Let no call begin, and wait for those that run. Without locks, which a signal here could leave locked."""
        self._are_over = True
        while self._num_running:
            time.sleep(_WAIT_SECONDS)

    def _count(self, change: int) -> None:
        with self._lock:
            self._num_running += change


def _first_result(waiting: deque[Future[Result]]) -> Result:
    """Wait for the first call and remove it, unless it is interrupted."""
    result = waiting[0].result()
    waiting.popleft()
    return result


def _end(calls: _Calls[Any, Any], waiting: Collection[Future[Any]], stop: Callable[[], None]) -> None:
    """Stop calls and wait for them, as they use memory that is freed next. Signals are raised once they have ended."""
    signals = []
    while True:
        try:
            stop()
            for future in waiting:
                future.cancel()
            calls.end()
            break
        except (KeyboardInterrupt, SystemExit) as signal:
            signals.append(signal)
    if signals:
        raise signals[0]


def row_ranges(num_rows: int, rows_per_block: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of consecutive blocks of rows."""
    for start in range(0, num_rows, rows_per_block):
        yield start, min(start + rows_per_block, num_rows)


def in_blocks(array: NDArray[Any], bytes_per_block: int = 4 << 20) -> Iterator[NDArray[Any]]:
    """Split an array in memory into blocks of rows."""
    row_bytes = array.nbytes // len(array) if len(array) else 1
    for start, stop in row_ranges(len(array), max(1, bytes_per_block // max(1, row_bytes))):
        yield np.ascontiguousarray(array[start:stop])
