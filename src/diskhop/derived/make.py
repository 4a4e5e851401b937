"""Making a folder of derived files, which becomes visible whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from diskhop.errors import BusyError, DestinationError
from diskhop.io.atomic import Injector, make_directories
from diskhop.runtime.progress import Progress, silent
from diskhop.runtime.tasks import WorkFolder

_STAGE = "files"
_SECONDS_BETWEEN_LOOKS = 0.1


def make_derived(
    destination: Path, key: str, build: Callable[[Path, WorkFolder], None], injector: Injector | None = None
) -> None:
    """Create a folder. An interrupted call leaves files that the next one with the same key finds.

    key: everything that determines the content. build: creates the files that are missing in a folder, durably;
    the work folder is for stages of its own. Nothing is done where another process has just made the folder.
    """
    make_directories(destination.parent, injector)
    with WorkFolder(destination, injector) as work:
        work.lock()
        if destination.exists():
            work.remove()
            return
        build(work.stage(_STAGE, key), work)
        work.publish(work.path / _STAGE)


def make_once(
    folder: Path,
    make: Callable[[], object],
    progress: Progress = silent,
    is_there: Callable[[Path], bool] = Path.exists,
) -> bool:
    """Make a folder unless it is there, or wait until another process has. Returns whether this one made it.

    make: creates the folder, whole. Raises what it raises, but for BusyError.
    """
    if is_there(folder):
        WorkFolder(folder).remove_left()
        return False
    while not is_there(folder):
        try:
            make()
        except DestinationError as error:
            if is_there(folder):  # another process has just finished
                break
            if not isinstance(error, BusyError):
                raise
            progress("waiting for another process", 0, 1)
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        else:
            return True
    return False
