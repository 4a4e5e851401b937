"""The command that runs a share of another command's tasks, as one index of an array job."""

from __future__ import annotations

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
    from diskhop.runtime.array_index import run_index

    done = run_index(folder, index, of)
    if as_json:
        print_json({"folder": str(folder), "index": index, "of": of, "tasks": done.parts, "stages": done.jobs})
    else:
        print_pairs([("tasks", f"{done.parts} in {done.jobs} stage{'s' * (done.jobs != 1)}"), ("folder", str(folder))])
