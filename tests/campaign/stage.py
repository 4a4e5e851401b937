"""A stage of work that may end at any moment, and be started again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from diskhop._native import Engine
from tests.graphs import folder_bytes, threads_engine
from tests.power_cuts import PowerCut


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process does a stage.

    inputs: what the stage reads; nothing writes there. out: its results; what is unfinished lies next to them.
    scratch: derived files. cut: the power cut that the process ends by; None for none.
    count: called after every batch of training.
    """

    inputs: Path
    out: Path
    scratch: Path
    cut: PowerCut | None
    count: Callable[[], None]

    @property
    def engine(self) -> Engine:
        """An engine that is cut off, too."""
        return threads_engine() if self.cut is None else Engine("threads", 1, self.cut.native)

    @property
    def threads(self) -> int:
        """One where changes are counted, so that their order is the same in every process."""
        return 2 if self.cut is None else 1


def nothing_there(_inputs: Path, _out: Path) -> None:
    """The stage starts from an empty folder."""


def no_check(_out: Path) -> None:
    """Nothing to check but the bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stage of work.

    prepare: writes the inputs to an empty folder.
    run: does the work, or what is left of it, as a user would who starts it again.
    begin: writes what is in `out` before the first start, from the inputs.
    done: glob of what is there once all is done, after which a second start is refused; "" if it is not.
    outcome: what must be the same, by name.
    timed: names of files, relative to `out`, whose content depends on time; of these only the names must be the same.
    spare: names of files that may lie there or not.
    check: raises AssertionError for results that are not right.
    interval: most batches of training that a kill may cost; 0 where there are none.
    commit: file below `out` that is replaced by a commit; the interval is then the longest between two of them.
    takes_cuts: whether its changes can be announced to a power cut.
    """

    name: str
    prepare: Callable[[Path], object]
    run: Callable[[Place], object]
    begin: Callable[[Path, Path], object] = nothing_there
    done: str = ""
    outcome: Callable[[Path], dict[str, bytes]] = folder_bytes
    timed: Callable[[str], bool] = field(default=lambda _name: False)
    spare: Callable[[str], bool] = field(default=lambda _name: False)
    check: Callable[[Path], object] = no_check
    interval: int = 0
    commit: str = ""
    takes_cuts: bool = True

    def result(self, out: Path) -> dict[str, bytes]:
        """Return the contents that two runs of the stage have in common."""
        return {
            name: content for name, content in self.outcome(out).items() if not (self.timed(name) or self.spare(name))
        }

    def names(self, out: Path) -> set[str]:
        """Return the files and folders that two runs have in common."""
        found = {str(path.relative_to(out)) for path in out.rglob("*")}
        return {name for name in found if not self.spare(name)}
