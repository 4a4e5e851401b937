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
    from diskhop.api.doctor import doctor as examine

    with stderr.status("measuring the disk, looking for GPUs"):
        found = examine(path)
    if as_json:
        print_json(found.to_dict())
        return
    print_pairs(found.to_rows())
