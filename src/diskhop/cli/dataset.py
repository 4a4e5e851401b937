"""The commands that look at a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diskhop.cli.app import command
from diskhop.cli.options import COMMON, DatasetPath, Json, Overwrite
from diskhop.cli.output import print_json, print_pairs, stderr, stdout
from diskhop.errors import FormatError


@command("inspect")
def inspect(
    dataset: DatasetPath,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="Write a page: degrees, labels, feature ranges, homophily, components, splits and types.",
            rich_help_panel=COMMON,
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory for the page's statistics; by default half of the free memory.",
            show_default=False,
            rich_help_panel=COMMON,
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Show the contents of a dataset."""
    from diskhop.api.dataset import inspect as inspect_dataset
    from diskhop.api.pages import page_row
    from diskhop.ui.facts import fact_rows
    from diskhop.ui.progress import stage_progress
    from diskhop.ui.schema import draw_schema

    with stage_progress(stderr) as progress:
        inspected = inspect_dataset(dataset, html=html, memory=memory, overwrite=overwrite, progress=progress)
    description, page = inspected.facts, inspected.page
    if as_json:
        print_json(description | ({} if page is None else {"page": str(page)}))
        return
    if "schema" in description:
        for line in draw_schema(description, stdout.width):
            stdout.print(line, markup=False)
        stdout.print()
        del description["schema"]
    print_pairs([*fact_rows(description), *([] if page is None else [page_row(page)])])


@command("verify")
def verify_command(
    dataset: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", show_default=False, help="Dataset, derived files, predictions, or RUN folder."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Compare every byte of a dataset, or of a folder made from it, with its checksum."""
    from diskhop.api.verify import verify
    from diskhop.ui.progress import stage_progress

    with stage_progress(stderr) as progress:
        verified = verify(dataset, progress=progress)
    damages = verified.damages
    if as_json:
        print_json({"dataset": str(dataset), "damaged": [str(damage) for damage in damages]})
    for damage in damages:
        stderr.print(str(damage), markup=False)
    if damages:
        raise FormatError(f"{dataset}: {len(damages)} damaged; {verified.remedy}")
    if not as_json:
        stdout.print(f"{dataset}: every checksum matches", markup=False)
