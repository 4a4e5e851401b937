"""Heartbeats: files that a process touches while it is alive, and how another process notices that it has died."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

_BEAT_SECONDS = 2.0


class Heartbeats:
    """Touches files until it is stopped."""

    def __init__(self) -> None:
        self._paths: set[Path] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeats", daemon=True)
        self._thread.start()

    def add(self, path: Path) -> None:
        """Touch a file from now on."""
        self._paths.add(path)

    def remove(self, path: Path) -> None:
        """Touch a file no longer."""
        self._paths.discard(path)

    def remove_files(self) -> None:
        """Remove the files: others need not wait until they look lost."""
        for path in list(self._paths):
            path.unlink(missing_ok=True)

    def stop(self) -> None:
        """Touch no file any longer."""
        self._stopped.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._stopped.wait(_BEAT_SECONDS):
            for path in list(self._paths):
                with contextlib.suppress(OSError):
                    os.utime(path)


class HeartbeatWatch:
    """Tells which files are no longer touched, by this process's clock: the clocks of machines differ."""

    def __init__(self, lost_seconds: float) -> None:
        self._lost_seconds = lost_seconds
        self._seen: dict[Path, tuple[int, float]] = {}

    def is_lost(self, path: Path) -> bool:
        """Return whether a file has stayed untouched for too long since it was first asked for."""
        now = time.monotonic()
        try:
            touched = path.stat().st_mtime_ns
        except FileNotFoundError:
            touched = 0
        last, since = self._seen.get(path, (-1, now))
        if touched != last:
            self._seen[path] = (touched, now)
            return False
        return now - since > self._lost_seconds
