"""Reads in flight ahead of their use, in a fixed number of buffers that are used again in turn."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from diskhop._native import Engine

Request = TypeVar("Request")


def prefetched(
    engine: Engine, requests: Iterable[Request], submit: Callable[[Request, int], int], num_slots: int
) -> Iterator[tuple[Request, int]]:
    """Yield (request, slot) in order, once its reads are done; up to num_slots - 1 requests are in flight meanwhile.

    submit(request, slot): starts the reads of a request into a slot, and returns their ticket. A slot stays as it is
    until the next request is asked for.
    """
    waiting: deque[tuple[Request, int, int]] = deque()
    try:
        for number, request in enumerate(requests):
            slot = number % num_slots
            waiting.append((request, slot, submit(request, slot)))
            if len(waiting) == num_slots:
                yield _wait(engine, waiting)
        while waiting:
            yield _wait(engine, waiting)
    finally:
        # The engine may still write to the buffers. Whoever left this unfinished has an error of its own.
        for _, _, ticket in waiting:
            with contextlib.suppress(Exception):
                engine.wait(ticket)


def _wait(engine: Engine, waiting: deque[tuple[Request, int, int]]) -> tuple[Request, int]:
    request, slot, ticket = waiting.popleft()
    engine.wait(ticket)
    return request, slot
