"""Memory that a job has lost: what LeakSanitizer finds in its process, beyond what it finds without a fault."""

from __future__ import annotations

import ctypes
import gc
import re
import subprocess
from pathlib import Path

# Frame of a stack but for the sanitizer's own: where in which file of the process.
_FRAME = re.compile(r"^    #[1-9]\d* \S+ +\(([^[].*\+0x[0-9a-f]+)\)", re.MULTILINE)
# Python keeps the locals of its frames where the sanitizer does not look: its own objects, and what only they point to
# (an indirect leak), may be in use.
_PYTHON = re.compile(r"(lib)?python[0-9.]*(\.so[0-9.]*)?\+")


def sanitizer() -> Path:
    """Return the library to preload, which comes with g++. Raises RuntimeError where it does not."""
    command = ["g++", "-print-file-name=liblsan.so"]
    path = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    if not path.is_file():
        raise RuntimeError("g++ has no liblsan.so; install its LeakSanitizer")
    return path


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a process that is checked. folder: for the reports."""
    return {
        # Those of pymalloc are not found, nor is what only they point to.
        "PYTHONMALLOC": "malloc",
        # The sanitizer takes threads of a forked child for those of its parent: the parent may have none.
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
        "LSAN_OPTIONS": f"log_path={folder / 'leaks'}:symbolize=0",
    }


class Leaks:
    """Checks forked children of a process that has the sanitizer."""

    def __init__(self, library: ctypes.CDLL, folder: Path) -> None:
        self._library, self._folder = library, folder
        self._known = frozenset[tuple[str, ...]]()

    def check(self) -> None:
        """Write a report of this child."""
        gc.collect()
        self._library["__lsan_do_recoverable_leak_check"]()

    def expect(self) -> None:
        """Take what the last child has leaked for known."""
        self._known = self._stacks()

    def found(self) -> str:
        """Return what the last child has leaked that is not known; "" for nothing."""
        stacks = sorted(self._stacks() - self._known)
        return f"leaks at {len(stacks)} places, of which {' < '.join(stacks[0])}" if stacks else ""

    def _stacks(self) -> frozenset[tuple[str, ...]]:
        stacks = set[tuple[str, ...]]()
        for path in self._folder.glob("leaks.*"):
            for leak in path.read_text(errors="replace").split("\n\n"):
                frames = _FRAME.findall(leak)
                if "Direct leak of " in leak and frames and not _PYTHON.match(Path(frames[0]).name):
                    stacks.add(tuple(frames))
            path.unlink()
        return frozenset(stacks)
