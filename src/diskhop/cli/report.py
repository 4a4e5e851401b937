"""The command that shows what runs did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diskhop.budget import format_bytes
from diskhop.cli.app import Json, app
from diskhop.cli.output import print_json, print_pairs


@app.command()
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs, also of such as go on or were killed."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Default: report.html in the folder of the one run, or here."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a page that shows runs: curves, time by stage, bytes, memory, the plan. It opens in any browser."""
    from diskhop.report import write_report

    path = write_report(runs, out)
    num_bytes = path.stat().st_size
    if as_json:
        print_json({"path": str(path), "bytes": num_bytes})
        return
    print_pairs([("written", f"{path}, {format_bytes(num_bytes)}: open it in a browser")])
