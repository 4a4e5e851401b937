"""Commands for derived files: what diskhop makes of a dataset ahead and would make again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diskhop.budget import format_bytes
from diskhop.cli.app import DatasetPath, Json, app
from diskhop.cli.output import print_json, print_pairs, stdout
from diskhop.dataset.files import read_manifest
from diskhop.errors import ConfigError
from diskhop.io.derived import DerivedEntry, list_derived, remove_unused


@app.command()
def clean(
    dataset: DatasetPath,
    scratch: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The folder that runs were given; all in it is listed, of any dataset. Default: DATASET/derived.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List them, remove nothing.")] = False,
    as_json: Json = False,
) -> None:
    """List derived files (scratch of runs, packed layouts) and remove those that nobody uses."""
    read_manifest(dataset)
    if scratch is not None and not scratch.exists():
        raise ConfigError(f"{scratch}: there is no such folder; --scratch names the one that a run was given")
    folder = dataset / "derived" if scratch is None else scratch
    entries = list_derived(folder)
    removable = [entry for entry in entries if entry.kept_because is None]
    if not dry_run:
        entries = remove_unused(entries)
        removable = [entry for entry in entries if entry.is_removed]
    num_bytes = sum(entry.num_bytes or 0 for entry in removable)
    if as_json:
        print_json(
            {
                "dataset": str(dataset),
                "folder": str(folder),
                "dry_run": dry_run,
                "entries": [
                    {
                        "name": entry.path.name,
                        "what": entry.what,
                        **({} if entry.num_bytes is None else {"bytes": entry.num_bytes}),
                        "kept_because": entry.kept_because,
                        "removed": entry.is_removed,
                    }
                    for entry in entries
                ],
                "removed_bytes": 0 if dry_run else num_bytes,
            }
        )
        return
    if not entries:
        stdout.print(f"{folder}: there are no derived files", markup=False)
        return
    outcome = "would be removed" if dry_run else "removed"
    print_pairs(
        [
            *((entry.path.name, _tell(entry, outcome)) for entry in entries),
            (outcome, f"{len(removable)} of {len(entries)}, {format_bytes(num_bytes)}"),
        ]
    )


def _tell(entry: DerivedEntry, outcome: str) -> str:
    if entry.num_bytes is None:
        return f"{entry.what}: left alone"
    kept = None if entry.kept_because is None else f"kept: {entry.kept_because}"
    return f"{entry.what}, {format_bytes(entry.num_bytes)}, {kept or outcome}"
