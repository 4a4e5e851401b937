"""The command that exports datasets and embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from diskhop.budget import format_bytes
from diskhop.cli.app import command
from diskhop.cli.options import COMMON, Json, Overwrite, takes_options
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.config.train import TrainConfig


@command("export")
@takes_options(TrainConfig, only=("memory_bytes", "threads"))
def export(
    source: Annotated[Path, typer.Argument(metavar="DATASET|RUN", help="A dataset, or a run of embeddings or links.")],
    destination: Annotated[
        Path,
        typer.Argument(
            metavar="DEST",
            help="New folder for a dataset; for embeddings a new .npy, .parquet or .tsv file, or a .faiss "
            "or .usearch index.",
        ),
    ],
    *,
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Format of a dataset: numpy, parquet, tables (one per type) or graphbolt.",
            rich_help_panel=COMMON,
        ),
    ] = "numpy",
    by: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Nearness in an index: cosine, dot or l2. [default: cosine]",
            rich_help_panel=COMMON,
            show_default=False,
        ),
    ] = None,
    ann: Annotated[
        bool,
        typer.Option(
            "--ann",
            metavar="",
            help="Make a .faiss an approximate index (HNSW), not an exact one; .usearch always is one.",
            rich_help_panel=COMMON,
        ),
    ] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Export a dataset or embeddings by original ids: DEST appears once it is complete, or not at all."""
    from diskhop.api.export import export as export_source
    from diskhop.run_files import CONFIG_FILE
    from diskhop.ui.progress import stage_progress

    with stage_progress(stderr) as progress:
        exported = export_source(
            source, destination, format=format_name, by=by, ann=ann, overwrite=overwrite, progress=progress, **given
        )
    files = exported.files
    if (source / CONFIG_FILE).exists():
        (num_bytes,) = files.values()
        if as_json:
            print_json({"path": str(exported.path), "bytes": num_bytes})
        else:
            print_pairs([("exported", f"{source} to {exported.path}, {format_bytes(num_bytes)}")])
    elif as_json:
        left_out = {"left_out": list(exported.left_out)} if exported.left_out else {}
        print_json({"path": str(exported.path), "format": exported.format_name, "files": files, **left_out})
    else:
        print_pairs([("exported", f"{source} to {exported.path}"), *exported.rows()])
