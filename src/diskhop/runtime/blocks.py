"""The same work on many blocks, by several threads at once, results in order: for work that releases the GIL."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def threads_that_fit(threads: int, most_bytes: int, held_bytes: Callable[[int], int]) -> int:
    """The most of the threads, at least 1, that hold no more than most_bytes; held_bytes: what so many of them hold."""
    return next((fewer for fewer in range(threads, 1, -1) if held_bytes(fewer) <= most_bytes), 1)


def map_in_order(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Generator[Result]:
    """Yield function(item) for each item, in order. At most threads + 1 results are held or in the making.

    An error is raised in its turn; what was begun meanwhile is waited for.
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
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
