"""The command that generates graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from diskhop.cli.app import command
from diskhop.cli.options import COMMON, Json, Overwrite, takes_options
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.config.train import TrainConfig
from diskhop.generating.config import GraphConfig
from diskhop.generating.expand_config import ExpandConfig
from diskhop.generating.typed_config import TypedConfig


@command("generate")
@takes_options(GraphConfig)
@takes_options(TypedConfig, only=("shape",))
@takes_options(ExpandConfig, only=("factor",))
@takes_options(TrainConfig, only=("memory_bytes", "threads"))
def generate(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="kronecker (R-MAT, power law), uniform, sbm, typed or expand.")
    ],
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="[GRAPH] DEST", help="Dataset to expand (expand only), and folder of the new one."),
    ],
    *,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the dataset; by default KIND.", rich_help_panel=COMMON)
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Generate a random graph of any size, or expand one: the same bytes with any --memory and --threads."""
    from diskhop.api.generate import generate as generate_dataset
    from diskhop.budget import format_bytes
    from diskhop.dataset.verify import describe
    from diskhop.ui.progress import stage_progress
    from diskhop.ui.summary import summarize_dataset

    # The estimate is printed once the work has begun: an early error stands alone.
    estimates: list[int] = []

    with stage_progress(stderr) as progress:

        def report(stage: str, done: int, total: int) -> None:
            while estimates:
                stderr.print(f"{folders[-1]}: {format_bytes(estimates.pop())} to write", markup=False)
            progress(stage, done, total)

        dataset = generate_dataset(
            kind, *folders, name=name, overwrite=overwrite, progress=report, on_estimate=estimates.append, **given
        )
    if as_json:
        print_json(describe(dataset))
    else:
        print_pairs(summarize_dataset(dataset, "generated"))
