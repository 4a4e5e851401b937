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
    """Measure this machine, its GPUs and the disk below PATH, and say what to expect of them."""
    from diskhop.disk.report import report_disk
    from diskhop.pipeline.device_report import report_devices

    with stderr.status("measuring the disk"):
        report = report_disk(path)
    with stderr.status("looking for GPUs"):
        devices = report_devices()
    if as_json:
        print_json({**report.to_dict(), **devices.to_dict()})
        return
    print_pairs([*report.to_rows(), *devices.to_rows()])
