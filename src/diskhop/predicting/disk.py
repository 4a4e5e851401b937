"""Disk space of prediction, checked before the heavy work."""

from __future__ import annotations

from dataclasses import dataclass

from diskhop.budget import format_bytes
from diskhop.derived.scratch import free_bytes
from diskhop.errors import ConfigError, DestinationError
from diskhop.runtime.tasks import WorkFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """Disk space that prediction may take.

    tables_bytes: tables between layers at most; 0 for all that is free.
    files_bytes: the files of the predictions, which are written while the last tables exist.
    """

    tables_bytes: int = 0
    files_bytes: int = 0

    def require(self, work: WorkFolder, most_bytes: int, last_bytes: int) -> None:
        """Raise ConfigError for too small a --disk, DestinationError for too small a disk.

        work: the folder of the tables. most_bytes: tables that exist at the same time. last_bytes: those that stay
        until the predictions are written.
        """
        if 0 < self.tables_bytes < most_bytes:
            raise ConfigError(
                f"--disk {format_bytes(self.tables_bytes)} is too small: the tables between layers take "
                f"{format_bytes(most_bytes)}; the smallest that works is --disk {-(-most_bytes // 1_000_000)}MB"
            )
        folder = work.path.parent
        needed_bytes, free = max(most_bytes, last_bytes + self.files_bytes), free_bytes(folder) + work.kept_bytes()
        if needed_bytes > free:
            raise DestinationError(
                f"{folder}: tables between layers and predictions take {format_bytes(needed_bytes)}, only "
                f"{format_bytes(free)} are free; free some space, or choose another disk with --scratch"
            )


ALL_FREE = DiskSpace()
