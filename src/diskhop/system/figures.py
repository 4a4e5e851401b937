"""Figures that the kernel gives in lines of text, such as 'VmRSS: 12 kB'."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from diskhop.errors import TrainingError

STATUS, MEMORY_INFO = Path("/proc/self/status"), Path("/proc/meminfo")


def read_figures(path: Path, names: Collection[str]) -> dict[str, int]:
    """Read lines in kB of a file in /proc, as bytes by name. Raises TrainingError for a name without a line."""
    lines = (line.partition(":") for line in path.read_text(encoding="ascii").splitlines())
    found = {name: int(value.split()[0]) * 1024 for name, _, value in lines if name in names}
    for name in names:
        if name not in found:
            raise TrainingError(f"{path}: has no line {name}; diskhop needs a Linux kernel with /proc mounted")
    return found
