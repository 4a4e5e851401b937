"""What was measured of this machine and is remembered: one JSON file a subject in the user's cache directory.

A cache is only that: damaged, unwritable or gone, its subject is measured again.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any


def machine_cache_path(name: str) -> Path:
    """Where a subject's figures are kept: $XDG_CACHE_HOME or ~/.cache, below diskhop/."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "diskhop" / name


def read_machine_cache(name: str) -> Any:
    """What was written last, or None."""
    try:
        return json.loads(machine_cache_path(name).read_text())
    except (OSError, ValueError, RecursionError):
        return None


def write_machine_cache(name: str, content: Any) -> None:
    """Replace what is remembered. A cache that cannot be written costs the next run its measuring, nothing else."""
    path = machine_cache_path(name)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            partial.write_text(json.dumps(content))
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def create_machine_cache(name: str, content: Any) -> None:
    """Remember something unless something is remembered: of processes that try at the same time, the first wins."""
    path = machine_cache_path(name)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.") as partial:
            partial.write(json.dumps(content))
            partial.flush()
            try:
                # Unlike a rename, a link never replaces what is there.
                os.link(partial.name, path)
            except FileExistsError:
                pass
            except OSError:  # the file system has no hard links
                write_machine_cache(name, content)


def discard_machine_cache(name: str) -> None:
    """Forget what is remembered, if anything is."""
    with contextlib.suppress(OSError):
        machine_cache_path(name).unlink()
