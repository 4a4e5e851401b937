"""The command that exports datasets and embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from diskhop.budget import format_bytes
from diskhop.cli.app import command
from diskhop.cli.options import COMMON, Json, Overwrite, takes_options
from diskhop.cli.output import budget_of, print_json, print_pairs, stderr
from diskhop.config.train import TrainConfig
from diskhop.errors import ConfigError


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
    from diskhop.dataset.dataset import open_dataset
    from diskhop.exporting.formats import export_dataset
    from diskhop.io.engine import open_engine
    from diskhop.run_files import CONFIG_FILE
    from diskhop.ui.progress import stage_progress

    if (source / CONFIG_FILE).exists():
        of_index = {"by": by, "ann": ann, "memory": given.get("memory_bytes"), "threads": given.get("threads")}
        _export_embeddings(source, destination, of_index, overwrite=overwrite, as_json=as_json)
        return
    if not source.exists():
        _require_no_file_of_a_run(source, destination)
    if by is not None or ann:
        raise ConfigError(f"--{'by' if by else 'ann'} is for indexes of embeddings, and {source} is no run; remove it")
    budget = budget_of(given)
    with stage_progress(stderr) as progress:
        exported = export_dataset(
            open_dataset(source),
            destination,
            format_name=format_name,
            engine=open_engine("auto").engine,
            budget=budget,
            threads=given.get("threads"),
            progress=progress,
            overwrite=overwrite,
        )
    if as_json:
        left_out = {"left_out": list(exported.left_out)} if exported.left_out else {}
        print_json({"path": str(exported.path), "format": exported.format_name, "files": exported.files, **left_out})
        return
    files = [(name, format_bytes(num_bytes)) for name, num_bytes in exported.files.items()]
    if exported.left_out:
        why = f"format '{format_name}' does not store them; use --format numpy"
        files.append(("not exported", f"{', '.join(exported.left_out)} ({why})"))
    print_pairs([("exported", f"{source} to {exported.path}"), *files])


def _require_no_file_of_a_run(source: Path, destination: Path) -> None:
    """Raise ConfigError if a destination is a file of embeddings, which a missing source cannot have."""
    from diskhop.runs.embedding.export import EXPORTS
    from diskhop.runs.embedding.index import INDEXES

    if destination.suffix in (*EXPORTS, *INDEXES):
        raise ConfigError(
            f"{source}: there is no such run to export to {destination.name}; name the folder of a run, or make one "
            "with 'diskhop embed'"
        )


def _export_embeddings(
    run: Path, destination: Path, of_index: Mapping[str, Any], *, overwrite: bool, as_json: bool
) -> None:
    from diskhop.runs.export import export_embeddings
    from diskhop.ui.progress import stage_progress

    with stage_progress(stderr) as progress:
        export_embeddings(run, destination, progress, overwrite=overwrite, **of_index)
    num_bytes = destination.stat().st_size
    if as_json:
        print_json({"path": str(destination), "bytes": num_bytes})
        return
    print_pairs([("exported", f"{run} to {destination}, {format_bytes(num_bytes)}")])
