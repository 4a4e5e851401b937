"""The command that measures this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diskhop.cli.app import command
from diskhop.cli.options import Json
from diskhop.cli.output import print_json, print_pairs, stderr


@command("doctor")
def doctor(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Folder on the disk to measure.")] = Path(),
    as_json: Json = False,
) -> None:
    """Measure this machine and the disk below PATH, and say what to expect of them."""
    from diskhop.disk.report import report_disk

    with stderr.status("measuring the disk"):
        report = report_disk(path)
    if as_json:
        print_json(report.to_dict())
        return
    print_pairs(report.to_rows())
