"""Cached measurements of this machine: one JSON file per subject in the user's cache directory.

A cache file that is damaged, unwritable or missing only costs another measurement.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any


def machine_cache_path(name: str) -> Path:
    """Return the path of a cache file: $XDG_CACHE_HOME or ~/.cache, below diskhop/."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "diskhop" / name


def read_machine_cache(name: str) -> Any:
    """Read the cached content, None if there is none."""
    try:
        return json.loads(machine_cache_path(name).read_text())
    except (OSError, ValueError, RecursionError):
        return None


def write_machine_cache(name: str, content: Any) -> None:
    """Replace the cached content. Errors are ignored: the next run then measures again."""
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
    """Cache content unless there is some already: among concurrent processes, the first wins."""
    path = machine_cache_path(name)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.") as partial:
            partial.write(json.dumps(content))
            partial.flush()
            try:
                # Unlike a rename, a link never replaces an existing file.
                os.link(partial.name, path)
            except FileExistsError:
                pass
            except OSError:  # the file system has no hard links
                write_machine_cache(name, content)


def discard_machine_cache(name: str) -> None:
    """Remove the cached content, if there is any."""
    with contextlib.suppress(OSError):
        machine_cache_path(name).unlink()
