"""The command that takes datasets and embeddings out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from diskhop.budget import Budget, format_bytes, parse_bytes
from diskhop.cli.app import Json, Memory, Threads, app
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.dataset.dataset import open_dataset
from diskhop.exporting.formats import export_dataset
from diskhop.io.engine import open_engine
from diskhop.ui.progress import stage_progress


@app.command()
def export(
    source: Annotated[Path, typer.Argument(metavar="DATASET|RUN", help="A dataset, or a run of 'diskhop embed'.")],
    destination: Annotated[
        Path, typer.Argument(metavar="DEST", help="The folder to make; of embeddings a .npy, .parquet or .tsv file.")
    ],
    format_name: Annotated[str, typer.Option("--format", help="Of a dataset: numpy, parquet or graphbolt.")] = "numpy",
    memory: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Write a dataset or embeddings for other programs, by original ids: DEST appears whole, or not at all."""
    if (source / "commit.json").exists():
        _export_embeddings(source, destination, as_json=as_json)
        return
    budget = None if memory is None else Budget(parse_bytes(memory))
    with stage_progress(stderr) as progress:
        exported = export_dataset(
            open_dataset(source),
            destination,
            format_name=format_name,
            engine=open_engine("auto").engine,
            budget=budget,
            threads=threads,
            progress=progress,
        )
    if as_json:
        print_json({"path": str(exported.path), "format": exported.format_name, "files": exported.files})
        return
    files = [(name, format_bytes(num_bytes)) for name, num_bytes in exported.files.items()]
    print_pairs([("exported", f"{source} to {exported.path}"), *files])


def _export_embeddings(run: Path, destination: Path, *, as_json: bool) -> None:
    # Here, not above: it brings PyTorch, which the other commands do without.
    from diskhop.runs import export_embeddings

    with stage_progress(stderr) as progress:
        export_embeddings(run, destination, partial(progress, "writing embeddings"))
    num_bytes = destination.stat().st_size
    if as_json:
        print_json({"path": str(destination), "bytes": num_bytes})
        return
    print_pairs([("exported", f"{run} to {destination}, {format_bytes(num_bytes)}")])
