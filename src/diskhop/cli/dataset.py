"""Commands that bring datasets in and look at them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diskhop.budget import Budget, parse_bytes
from diskhop.cli.app import DatasetPath, Json, Memory, Threads, app
from diskhop.cli.output import print_description, print_json, print_pairs, stderr, stdout
from diskhop.dataset.convert import import_graph
from diskhop.dataset.dataset import open_dataset
from diskhop.dataset.verify import describe, verify
from diskhop.errors import FormatError
from diskhop.io.engine import open_engine
from diskhop.stages import stage_progress
from diskhop.summary import summarize_dataset


@app.command("import")
def import_command(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A folder with data.npz or .npy files.")],
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="The dataset to make.")],
    format_name: Annotated[str | None, typer.Option("--format", help="Of the source; default: detected.")] = None,
    name: Annotated[str | None, typer.Option(help="The dataset's name; default: the source's.")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Store features as float32, float16, bfloat16 or int8; default: as they are.")
    ] = None,
    memory: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Bring a graph in: DEST appears when it is complete, or not at all."""
    budget = None if memory is None else Budget(parse_bytes(memory))
    with stage_progress(stderr) as progress:
        dataset = import_graph(
            source,
            destination,
            format_name=format_name,
            name=name,
            feature_dtype=dtype,
            engine=open_engine("auto").engine,
            budget=budget,
            threads=threads,
            progress=progress,
        )
    if as_json:
        print_json(describe(dataset))
    else:
        print_pairs(summarize_dataset(dataset))


@app.command()
def inspect(dataset: DatasetPath, as_json: Json = False) -> None:
    """Show what is in a dataset."""
    print_description(describe(open_dataset(dataset)), as_json)


@app.command("verify")
def verify_command(dataset: DatasetPath, as_json: Json = False) -> None:
    """Read every byte and compare it with its checksum."""
    with stage_progress(stderr) as progress:
        damages = verify(dataset, progress)
    if as_json:
        print_json({"dataset": str(dataset), "damaged": [str(damage) for damage in damages]})
    for damage in damages:
        stderr.print(str(damage), markup=False)
    if damages:
        raise FormatError(f"{dataset}: {len(damages)} damaged; import the graph again or copy the dataset anew")
    if not as_json:
        stdout.print(f"{dataset}: every byte is as it was written", markup=False)
