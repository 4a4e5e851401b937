"""Blocks of rows, and functions mapped over them by several threads, for work that releases the GIL."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")
Result = TypeVar("Result")


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
    with ThreadPoolExecutor(threads) as executor:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(executor.submit(function, item))
                if len(waiting) > threads:
                    yield _first_result(waiting)
            while waiting:
                yield _first_result(waiting)
        finally:
            _end(waiting, stop)


def _first_result(waiting: deque[Future[Result]]) -> Result:
    """Wait for the first call and remove it, unless it is interrupted."""
    result = waiting[0].result()
    waiting.popleft()
    return result


def _end(waiting: Collection[Future[Any]], stop: Callable[[], None]) -> None:
    """Stop calls and wait for them, as they use memory that is freed next. Signals are raised once they have ended."""
    signals = []
    while True:
        try:
            if waiting:
                stop()
            for future in waiting:
                future.cancel()
            wait(waiting)
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
