"""The command that generates graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diskhop.cli.app import command
from diskhop.cli.options import COMMON, Json, Overwrite, takes_options
from diskhop.cli.output import budget_of, print_json, print_pairs, stderr
from diskhop.config.options import option_fields
from diskhop.config.train import TrainConfig
from diskhop.errors import ConfigError
from diskhop.generating.config import DEFAULT_NODES, EDGES_PER_NODE, TYPED, GraphConfig
from diskhop.generating.expand_config import EXPAND, ExpandConfig
from diskhop.generating.typed_config import TypedConfig

if TYPE_CHECKING:
    from diskhop.dataset.dataset import Dataset


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
    from diskhop.budget import format_bytes
    from diskhop.dataset.verify import describe
    from diskhop.io.engine import open_engine
    from diskhop.ui.progress import stage_progress
    from diskhop.ui.summary import summarize_dataset

    budget, threads = budget_of(given), given.pop("threads", None)
    *graphs, destination = folders
    make, num_bytes = _expansion(graphs, given) if kind == EXPAND else _drawn(kind, graphs, given)
    # The estimate is printed once the work has begun: an early error stands alone.
    estimate = [f"{destination}: {format_bytes(num_bytes)} to write"]

    with stage_progress(stderr) as progress:

        def report(stage: str, done: int, total: int) -> None:
            while estimate:
                stderr.print(estimate.pop(), markup=False)
            progress(stage, done, total)

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


def _expansion(graphs: list[Path], given: dict[str, Any]) -> tuple[Callable[..., Dataset], int]:
    """Return what expands a graph, and the bytes of the result."""
    from diskhop.dataset.dataset import open_dataset
    from diskhop.generating import expand_graph, expanded_bytes

    if len(graphs) != 1:
        raise ConfigError("kind 'expand' takes a dataset and a folder: diskhop generate expand GRAPH DEST --factor 4")
    unfit = [option_fields(GraphConfig)[name].main_flag for name in given if name in option_fields(GraphConfig)]
    if unfit or "shape" in given:
        raise ConfigError(f"{unfit[0] if unfit else '--shape'} has no effect on kind '{EXPAND}'; leave it out")
    config, graph = ExpandConfig(**given), open_dataset(graphs[0])
    return partial(expand_graph, graph, config=config), expanded_bytes(graph, config)


def _drawn(kind: str, graphs: list[Path], given: dict[str, Any]) -> tuple[Callable[..., Dataset], int]:
    """Return what draws a graph of a kind, and the bytes of the result."""
    from diskhop.generating import generate_graph, generate_typed_graph, result_bytes, typed_result_bytes

    if "factor" in given:
        raise ConfigError(f"--factor is for kind '{EXPAND}' only; leave it out for '{kind}'")
    if kind == TYPED:
        typed = _typed_config(given)
        make, num_bytes = partial(generate_typed_graph, config=typed), typed_result_bytes(typed)
    else:
        config = _config(kind, given)
        make, num_bytes = partial(generate_graph, config=config), result_bytes(config)
    if graphs:
        raise ConfigError(f"kind '{kind}' takes one folder, got {len(graphs) + 1}; leave out {graphs[0]}")
    return make, num_bytes


def _config(kind: str, given: dict[str, Any]) -> GraphConfig:
    if "shape" in given:
        raise ConfigError(f"--shape is for kind '{TYPED}' only; leave it out for '{kind}'")
    return GraphConfig(kind=kind, **{"num_edges": EDGES_PER_NODE * given.get("num_nodes", DEFAULT_NODES), **given})


def _typed_config(given: dict[str, Any]) -> TypedConfig:
    unfit = [option_fields(GraphConfig)[name].main_flag for name in given if name not in option_fields(TypedConfig)]
    if unfit:
        raise ConfigError(f"{unfit[0]} has no effect on kind '{TYPED}'; leave it out")
    return TypedConfig(**given)
