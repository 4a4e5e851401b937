"""The command that generates graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from diskhop.cli.app import command
from diskhop.cli.options import COMMON, Json, Overwrite, takes_options
from diskhop.cli.output import budget_of, print_json, print_pairs, stderr
from diskhop.config.train import TrainConfig
from diskhop.generating.config import DEFAULT_NODES, EDGES_PER_NODE, GraphConfig


@command("generate")
@takes_options(GraphConfig)
@takes_options(TrainConfig, only=("memory_bytes", "threads"))
def generate(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="kronecker (R-MAT, power law), uniform or sbm.")],
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="Folder of the new dataset.")],
    *,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the dataset; by default KIND.", rich_help_panel=COMMON)
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Generate a random graph of any size: the same bytes with any --memory and --threads."""
    from diskhop.budget import format_bytes
    from diskhop.dataset.verify import describe
    from diskhop.generating import generate_graph, result_bytes
    from diskhop.io.engine import open_engine
    from diskhop.ui.progress import stage_progress
    from diskhop.ui.summary import summarize_dataset

    budget, threads = budget_of(given), given.pop("threads", None)
    given.setdefault("num_edges", EDGES_PER_NODE * given.get("num_nodes", DEFAULT_NODES))
    config = GraphConfig(kind=kind, **given)
    # The estimate is printed once the work has begun: an early error stands alone.
    estimate = [f"{destination}: {format_bytes(result_bytes(config))} to write"]

    with stage_progress(stderr) as progress:

        def report(stage: str, done: int, total: int) -> None:
            while estimate:
                stderr.print(estimate.pop(), markup=False)
            progress(stage, done, total)

        dataset = generate_graph(
            destination,
            config,
            engine=open_engine("auto").engine,
            budget=budget,
            threads=threads,
            name=name,
            progress=report,
            overwrite=overwrite,
        )
    if as_json:
        print_json(describe(dataset))
    else:
        print_pairs(summarize_dataset(dataset, "generated"))
