"""Imports that crash before a change, and are gone on with: what every one of them must come to."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from diskhop._native import CrashError
from diskhop.dataset.verify import verify
from diskhop.io.faults import CrashInjector, Lost
from tests.graphs import folder_bytes

# Not at each change where time is short: the stages are made of the same tasks.
EVERY = pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])


class Crashes:
    """Crashes of one import, which `run` does to a path; `expected`: the bytes of it whole."""

    def __init__(self, folder: Path, run: Callable[[Path, CrashInjector | None], None]) -> None:
        self._folder = folder
        self._run = run
        whole = folder / "whole"
        whole.mkdir()
        with CrashInjector(whole, 0) as injector:
            run(whole / "graph", injector)
            self.num_changes = injector.num_changes
        self.expected = folder_bytes(whole / "graph")

    def each(self, every: int, lost: Lost) -> Iterator[Path]:
        """The destination as a disk holds it after a crash, before every so many changes. Whoever takes it looks at it
        and, where it is not there, does the import again; then it must be what it would have been, and alone.
        """
        for nth in range(1, self.num_changes + 1, every):
            root, after = self._folder / f"{nth}", self._folder / f"after-{nth}"
            root.mkdir()
            after.mkdir()
            with CrashInjector(root, nth) as injector:
                with pytest.raises(CrashError):
                    self._run(root / "graph", injector)
                injector.write_survivors(after, lost)
            graph = after / "graph"
            was_there = graph.exists()
            yield graph
            assert folder_bytes(graph) == self.expected
            assert verify(graph) == []
            # The work folder goes after the dataset has come: a crash between them leaves both.
            assert {path.name for path in after.iterdir()} - {".graph.work"} == {"graph"}
            assert was_there or not (after / ".graph.work").exists()
            shutil.rmtree(root)
