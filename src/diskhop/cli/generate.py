"""The command that generates graphs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from diskhop.cli.app import command
from diskhop.cli.options import COMMON, Json, Overwrite, takes_options
from diskhop.cli.output import budget_of, print_json, print_pairs, stderr
from diskhop.config.options import option_fields
from diskhop.config.train import TrainConfig
from diskhop.errors import ConfigError
from diskhop.generating.config import DEFAULT_NODES, EDGES_PER_NODE, TYPED, GraphConfig
from diskhop.generating.typed_config import TypedConfig


@command("generate")
@takes_options(GraphConfig)
@takes_options(TypedConfig, only=("shape",))
@takes_options(TrainConfig, only=("memory_bytes", "threads"))
def generate(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="kronecker (R-MAT, power law), uniform, sbm or typed.")],
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
    from diskhop.generating import generate_graph, generate_typed_graph, result_bytes, typed_result_bytes
    from diskhop.io.engine import open_engine
    from diskhop.ui.progress import stage_progress
    from diskhop.ui.summary import summarize_dataset

    budget, threads = budget_of(given), given.pop("threads", None)
    config = _typed_config(given) if kind == TYPED else _config(kind, given)
    num_bytes = typed_result_bytes(config) if isinstance(config, TypedConfig) else result_bytes(config)
    # The estimate is printed once the work has begun: an early error stands alone.
    estimate = [f"{destination}: {format_bytes(num_bytes)} to write"]

    with stage_progress(stderr) as progress:

        def report(stage: str, done: int, total: int) -> None:
            while estimate:
                stderr.print(estimate.pop(), markup=False)
            progress(stage, done, total)

        make = (
            partial(generate_typed_graph, config=config)
            if isinstance(config, TypedConfig)
            else partial(generate_graph, config=config)
        )
        dataset = make(
            destination,
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


def _config(kind: str, given: dict[str, Any]) -> GraphConfig:
    if "shape" in given:
        raise ConfigError(f"--shape is for kind '{TYPED}' only; leave it out for '{kind}'")
    return GraphConfig(kind=kind, **{"num_edges": EDGES_PER_NODE * given.get("num_nodes", DEFAULT_NODES), **given})


def _typed_config(given: dict[str, Any]) -> TypedConfig:
    unfit = [option_fields(GraphConfig)[name].main_flag for name in given if name not in option_fields(TypedConfig)]
    if unfit:
        raise ConfigError(f"{unfit[0]} has no effect on kind '{TYPED}'; leave it out")
    return TypedConfig(**given)
