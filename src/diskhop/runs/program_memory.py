"""Memory of a process before its run: the program, apart from what it has read of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diskhop.planning.overhead import MeasuredMemory, MemoryWish
from diskhop.runs.choices import Choice
from diskhop.system.figures import STATUS, read_figures

MEMORY = "memory_bytes"


def measure_program(data_bytes: int) -> MeasuredMemory:
    """Measure this process without a model. data_bytes: resident graph data."""
    resident = read_figures(STATUS, ("VmRSS", "RssFile"))
    return MeasuredMemory(max(0, resident["VmRSS"] - data_bytes), resident["RssFile"], parameters=0, step=0)


def wish_of(config: Any, choices: Sequence[Choice]) -> MemoryWish:
    """Return the sizes that the user has named. choices: those made for the user."""
    is_chosen = any(choice.option == MEMORY for choice in choices)
    return MemoryWish(0 if is_chosen else config.memory_bytes, config.total_memory_bytes)
