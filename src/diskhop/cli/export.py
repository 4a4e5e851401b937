"""The command that takes datasets out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diskhop.budget import Budget, format_bytes, parse_bytes
from diskhop.cli.app import DatasetPath, Json, Memory, Threads, app
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.dataset.dataset import open_dataset
from diskhop.dataset.export import export_dataset
from diskhop.io.engine import open_engine
from diskhop.stages import stage_progress


@app.command()
def export(
    dataset: DatasetPath,
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="The folder to make.")],
    format_name: Annotated[str, typer.Option("--format", help="numpy, parquet or graphbolt.")] = "numpy",
    memory: Memory = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Write a dataset for other programs, by original ids: DEST appears when it is complete, or not at all."""
    budget = None if memory is None else Budget(parse_bytes(memory))
    with stage_progress(stderr) as progress:
        exported = export_dataset(
            open_dataset(dataset),
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
    print_pairs([("exported", f"{dataset} to {exported.path}"), *files])
