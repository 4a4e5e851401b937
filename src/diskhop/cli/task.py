"""The command that runs a share of another command's tasks, as one index of an array job."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from diskhop.cli.app import command
from diskhop.cli.options import COMMON, Json
from diskhop.cli.output import print_json, print_pairs


@command("task")
def task(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of a command with --executor array:DIR.", show_default=False)
    ],
    *,
    index: Annotated[
        int, typer.Option(metavar="I", help="Number of this share, from 0; any order.", rich_help_panel=COMMON)
    ],
    of: Annotated[int, typer.Option(metavar="N", help="Number of shares.", rich_help_panel=COMMON)],
    as_json: Json = False,
) -> None:
    """Run one share of a command's tasks, for array jobs of a scheduler, until the command ends."""
    from diskhop.api.task import task as run_share

    done = run_share(folder, index=index, of=of)
    if as_json:
        print_json({**asdict(done), "folder": str(folder)})
    else:
        print_pairs(done.rows())
