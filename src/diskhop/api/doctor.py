"""diskhop.doctor(): the command `diskhop doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskhop.disk.report import DiskReport, report_disk
from diskhop.display import Display, Facts, Part, Row
from diskhop.pipeline.device_report import DevicesReport, report_devices


@dataclass(frozen=True, slots=True, repr=False)
class Examined(Display):
    """Measurements of this machine.

    disk: the disk that holds the path, its engine, and memory.
    devices: the GPUs.
    """

    disk: DiskReport
    devices: DevicesReport

    def to_dict(self) -> dict[str, Any]:
        """Return all facts as plain JSON data."""
        return {**self.disk.to_dict(), **self.devices.to_dict()}

    def to_rows(self) -> list[Row]:
        """Return all facts as (name, value) rows for people."""
        return [*self.disk.to_rows(), *self.devices.to_rows()]

    def _title(self) -> str:
        return f"Machine, and the disk of {self.disk.path}"

    def _parts(self) -> Sequence[Part]:
        return [Facts(self.to_rows())]


def doctor(path: Path | str = ".") -> Examined:
    """Measure this machine, its GPUs and the disk below a path, and say what to expect of them.

    path: a folder on the disk; the file that is measured is removed again. Raises ConfigError if it is missing.

    >>> print(diskhop.doctor("."))
    Machine, and the disk of ...
    """
    return Examined(report_disk(Path(path)), report_devices())
