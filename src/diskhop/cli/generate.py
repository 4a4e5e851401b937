"""The command that makes graphs up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diskhop.budget import Budget, format_bytes, parse_bytes
from diskhop.cli.app import Json, Memory, Threads, app
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.dataset.verify import describe
from diskhop.errors import ConfigError
from diskhop.generating import GraphConfig, generate_graph, result_bytes
from diskhop.io.engine import open_engine
from diskhop.runtime.progress import Progress
from diskhop.ui.progress import stage_progress
from diskhop.ui.summary import summarize_dataset

_EDGES_PER_NODE = 10


@app.command()
def generate(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="kronecker (R-MAT: a power law), uniform, or sbm.")],
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="The dataset to make.")],
    nodes: Annotated[int, typer.Option(help="How many.")] = 100_000,
    edges: Annotated[int | None, typer.Option(help="How many are drawn; default: 10 for each node.")] = None,
    dim: Annotated[int, typer.Option(help="Features a node; 0 for none.")] = 128,
    dtype: Annotated[str, typer.Option(help="Of the features: float32, float16, bfloat16 or int8.")] = "float32",
    classes: Annotated[int, typer.Option(help="0 for neither labels nor splits.")] = 16,
    train_fraction: Annotated[float, typer.Option(help="Of all nodes, to train on.")] = 0.1,
    eval_fraction: Annotated[
        float | None,
        typer.Option(
            help="Of all nodes, for validation and, as many again, for test; default: 0.02, or half of what "
            "--train-fraction leaves if that is less."
        ),
    ] = None,
    signal: Annotated[float, typer.Option(help="Length of class means, in deviations of a feature's noise.")] = 1.0,
    directed: Annotated[
        bool, typer.Option("--directed/--undirected", help="Store each edge as it is drawn, or both ways.")
    ] = True,
    order: Annotated[
        str, typer.Option(help="Of nodes: input, or hot, those first that are most often somebody's neighbour.")
    ] = "input",
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 0,
    rmat: Annotated[
        str | None, typer.Option(help="kronecker: chances of the quadrants a,b,c,d; default: .45,.22,.22,.11.")
    ] = None,
    homophily: Annotated[
        float | None, typer.Option(help="sbm: chance that a neighbour is of the same class; default: 0.7.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The dataset's name; default: the kind.")] = None,
    memory: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Make up a graph of any size: the same bytes with any --memory and --threads."""
    config = GraphConfig(
        kind=kind,
        num_nodes=nodes,
        num_edges=_EDGES_PER_NODE * nodes if edges is None else edges,
        dim=dim,
        dtype=dtype,
        num_classes=classes,
        train_fraction=train_fraction,
        eval_fraction=eval_fraction,
        signal=signal,
        directed=directed,
        order=order,
        rmat=None if rmat is None else _parse_chances(rmat),
        homophily=homophily,
        seed=seed,
    )
    budget = None if memory is None else Budget(parse_bytes(memory))

    with stage_progress(stderr) as progress:
        dataset = generate_graph(
            destination,
            config,
            engine=open_engine("auto").engine,
            budget=budget,
            threads=threads,
            name=name,
            progress=_announced(f"{destination}: {format_bytes(result_bytes(config))} to write", progress),
        )
    if as_json:
        print_json(describe(dataset))
    else:
        print_pairs(summarize_dataset(dataset, "generated"))


def _announced(estimate: str, progress: Progress) -> Progress:
    """Print an estimate once the work has begun: an early error stands alone."""
    lines = [estimate]

    def report(stage: str, done: int, total: int) -> None:
        while lines:
            stderr.print(lines.pop(), markup=False)
        progress(stage, done, total)

    return report


def _parse_chances(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"--rmat '{text}' must be four numbers with commas between them, as .45,.22,.22,.11"
        ) from None
