"""The process that a run has to itself: torch's state, memory, the version of the program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import torch

from diskhop.errors import TrainingError


def diskhop_version() -> str:
    """Of the package, as it is installed."""
    try:
        return version("diskhop")
    except PackageNotFoundError:
        return "not installed"


@contextmanager
def reproducible(threads: int) -> Iterator[None]:
    """Torch with this many threads, deterministic kernels, and a generator of our own; all put back on leaving."""
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


def resident_bytes(name: Literal["VmRSS", "VmHWM"]) -> int:
    """Memory that this process has resident now (VmRSS), or had at most (VmHWM)."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise TrainingError(f"/proc/self/status: has no line {name}, which tells memory; diskhop needs a Linux kernel")
