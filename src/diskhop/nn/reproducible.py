"""Repeatable arithmetic: torch's threads and deterministic kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def reproducible(threads: int) -> Iterator[None]:
    """Run torch with this many threads, deterministic kernels and a separate generator; restore all of it on exit."""
    num_threads = torch.get_num_threads()
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    fills_memory = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    # Filling every new tensor first costs as much as the arithmetic, and nothing here reads what it has not written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(num_threads)
        torch.use_deterministic_algorithms(was_deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = fills_memory  # type: ignore[attr-defined]
