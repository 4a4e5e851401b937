"""The command that reports on runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diskhop.cli.app import command
from diskhop.cli.options import COMMON, Json, Overwrite
from diskhop.cli.output import print_json, print_pairs


@command("report")
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs (unfinished ones, too), and of predictions."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="Page to write; by default RUN/report.html, PREDICTIONS.html, or for several report.html here.",
            rich_help_panel=COMMON,
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write an HTML page about runs or predictions: curves, time by stage, I/O, memory and the plan."""
    from diskhop.api.report import report as write_page

    page = write_page(*runs, out=out, overwrite=overwrite)
    if as_json:
        print_json({"path": str(page.path), "bytes": page.num_bytes})
        return
    print_pairs(page.rows())
