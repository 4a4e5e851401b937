"""The process that a run has to itself: torch's state, memory, and what it says of itself."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import psutil
import torch

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.errors import TrainingError
from diskhop.system.memory import default_threads


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


def describe_run(dataset: Dataset, model: str, seed: int) -> dict[str, Any]:
    """What a result begins with, by the names of result.json."""
    return {
        "version": _version(),
        "dataset": dataset.name,
        "dataset_hash": dataset.hash,
        "model": model,
        "seed": seed,
    }


def describe_machine() -> dict[str, Any]:
    """The machine and the versions that figures depend on."""
    info = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    names = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": default_threads(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "diskhop": _version(),
    }


def measure_memory(before_bytes: int, budget: Budget) -> dict[str, int]:
    """Memory by the names of result.json. before_bytes: that this process had resident before anything was held.

    peak_rss_bytes is the most that it had. overhead_bytes, all that is not graph data, is the peak less what was
    reserved of the budget at once; and at least before_bytes, for what is reserved need not be resident.
    """
    peak_bytes = resident_bytes("VmHWM")
    return {
        "peak_rss_bytes": peak_bytes,
        "resident_before_bytes": before_bytes,
        "overhead_bytes": max(before_bytes, peak_bytes - budget.peak_bytes),
    }


def _version() -> str:
    try:
        return version("diskhop")
    except PackageNotFoundError:
        return "not installed"
