"""diskhop.report(): the command `diskhop report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diskhop.api.pages import page_row
from diskhop.display import Display, Facts, Part, Row
from diskhop.reporting.page import write_report


@dataclass(frozen=True, slots=True, repr=False)
class Reported(Display):
    """A page that was written.

    path: the HTML file.
    num_bytes: its size.
    """

    path: Path
    num_bytes: int

    def rows(self) -> list[Row]:
        """Return names and texts of lines for people."""
        return [page_row(self.path)]

    def _title(self) -> str:
        return "Report"

    def _parts(self) -> Sequence[Part]:
        return [Facts(self.rows())]


def report(*runs: Path | str, out: Path | str | None = None, overwrite: bool = False) -> Reported:
    """Write an HTML page about runs or predictions: curves, time by stage, I/O, memory and the plan.

    runs: folders of runs, which may still be training, and of predictions; several are compared.
    out: the page; default: RUN/report.html, PREDICTIONS.html, or for several report.html in the working directory.
    overwrite: whether a file that is there is replaced.

    Raises ConfigError for a folder with neither, DestinationError.

    >>> print(diskhop.report("run", out="run.html").path)
    run.html
    """
    path = write_report([Path(run) for run in runs], None if out is None else Path(out), overwrite=overwrite)
    return Reported(path, path.stat().st_size)
