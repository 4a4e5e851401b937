"""Work that crashes before a change to the disk and is resumed: it must end with the same bytes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from diskhop._native import CrashError, Engine
from diskhop.dataset.verify import verify
from diskhop.io.faults import CrashInjector, Lost
from tests.graphs import folder_bytes

# Every thirteenth change in the quick profile: all stages consist of the same tasks.
EVERY = pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.slow)])


def crash_numbers(num_changes: int, every: int, lost: Lost) -> range:
    """Return every `every`-th of the changes, counted from 1: other ones where names are lost than where data is."""
    return range(1 if lost == "names" else 1 + every // 2, num_changes + 1, every)


class Crash(NamedTuple):
    """A crash, or the end of a run that makes fewer changes.

    number: number of the change. after: folder as found on disk afterwards. finished: whether the run has finished.
    """

    number: int
    after: Path
    finished: bool


def crashes_of(
    folder: Path,
    step: int,
    lost: Lost,
    run: Callable[[Path, Engine, CrashInjector], object],
    prepare: Callable[[Path], object] = lambda _: None,
) -> Iterator[Crash]:
    """Crash before every `step`-th change, until a run finishes before it.

    run: works in a new folder, with an engine and an injector. prepare: fills the folder before.
    """
    nth, finished = 0, False
    while not finished:
        nth += step
        root, after = folder / f"{nth}", folder / f"after-{nth}"
        root.mkdir()
        after.mkdir()
        prepare(root)
        with CrashInjector(root, nth) as injector:
            try:
                run(root, Engine("threads", 1, injector.native), injector)
                finished = True
            except CrashError:
                pass
            injector.write_survivors(after, lost)
        yield Crash(nth, after, finished)


class Crashes:
    """Crashes of one import. run(path, injector) imports to a path; `expected` has the bytes of a complete import."""

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
        """Yield the destination as found on disk after a crash, before every `every`-th change.

        The caller imports again if the destination is missing. It must then be complete, with nothing next to it.
        """
        for nth in crash_numbers(self.num_changes, every, lost):
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
