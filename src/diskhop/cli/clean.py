"""The command that removes derived files: what diskhop made ahead of training and can make again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from diskhop.cli.app import command
from diskhop.cli.options import COMMON, DatasetPath, Json
from diskhop.cli.output import print_json, print_pairs, stdout

if TYPE_CHECKING:
    from diskhop.derived.clean import DerivedEntry


@command("clean")
def clean(
    dataset: DatasetPath,
    scratch: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The --scratch folder of runs, whatever their dataset; by default DATASET/derived.",
            rich_help_panel=COMMON,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", help="List derived files, remove nothing.", rich_help_panel=COMMON)
    ] = False,
    as_json: Json = False,
) -> None:
    """List derived files (traces, packed batches, hop tables) and remove those that no run uses."""
    from diskhop.api.clean import clean as clean_folder

    cleaned = clean_folder(dataset, scratch=scratch, dry_run=dry_run)
    if as_json:
        print_json(
            {
                "dataset": str(dataset),
                "folder": str(cleaned.folder),
                "dry_run": dry_run,
                "entries": [_document(entry) for entry in cleaned.entries],
                "removed_bytes": 0 if dry_run else cleaned.num_bytes,
            }
        )
    elif cleaned.entries:
        print_pairs(cleaned.rows())
    else:
        stdout.print(f"{cleaned.folder}: there are no derived files", markup=False)


def _document(entry: DerivedEntry) -> dict[str, object]:
    return {
        "name": entry.path.name,
        "what": entry.what,
        **({} if entry.num_bytes is None else {"bytes": entry.num_bytes}),
        "kept_because": entry.kept_because,
        "removed": entry.is_removed,
    }
