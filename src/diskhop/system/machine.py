"""The description of this machine in results and reports."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from diskhop.system.figures import MEMORY_INFO, read_figures
from diskhop.system.memory import default_threads


def describe_machine() -> dict[str, Any]:
    """Describe the machine and the versions that figures depend on."""
    info = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    names = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": default_threads(),
        "memory_bytes": read_figures(MEMORY_INFO, ("MemTotal",))["MemTotal"],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": version("torch"),
        "diskhop": diskhop_version(),
    }


def diskhop_version() -> str:
    """Return the version of this package."""
    try:
        return version("diskhop")
    except PackageNotFoundError:
        return "not installed"
