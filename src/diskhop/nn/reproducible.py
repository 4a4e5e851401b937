"""Repeatable arithmetic: torch's threads and deterministic kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def reproducible(threads: int) -> Iterator[None]:
    """Run torch with this many threads, deterministic kernels and a separate generator; restore all of it on exit."""
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    fills_memory = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True)
    # Filling every new tensor first costs as much as the arithmetic, and nothing here reads what it has not written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        with torch_threads(threads), torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.use_deterministic_algorithms(was_deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = fills_memory  # type: ignore[attr-defined]


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Run torch with this many threads, here and in threads that start meanwhile."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
