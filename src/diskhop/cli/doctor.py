"""The command that says what this machine can do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diskhop.cli.app import Json, app
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.disk.report import report_disk


@app.command()
def doctor(
    path: Annotated[Path, typer.Argument(metavar="[PATH]", help="A folder on the disk to look at.")] = Path(),
    as_json: Json = False,
) -> None:
    """Say what to expect of this machine and of the disk below PATH."""
    with stderr.status("measuring the disk"):
        report = report_disk(path)
    if as_json:
        print_json(report.to_dict())
        return
    print_pairs(report.to_rows())
