"""Making a folder of derived files, which becomes visible whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from diskhop.io.atomic import Injector, destination_errors, make_directories, rename, sync_directory
from diskhop.runtime.tasks import WorkFolder

_STAGE = "files"


def make_derived(
    destination: Path, key: str, build: Callable[[Path, WorkFolder], None], injector: Injector | None = None
) -> None:
    """Create a folder. An interrupted call leaves files that the next one with the same key finds.

    key: everything that determines the content. build: creates the files that are missing in a folder, durably;
    the work folder is for stages of its own.
    """
    make_directories(destination.parent, injector)
    with WorkFolder(destination, injector) as work:
        build(work.stage(_STAGE, key), work)
        with destination_errors(destination):
            rename(work.path / _STAGE, destination, injector)
            sync_directory(destination.parent, injector)
        work.remove()
