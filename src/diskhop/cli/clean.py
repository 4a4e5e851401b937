"""The command that removes derived files: what diskhop made ahead of training and can make again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diskhop.budget import format_bytes
from diskhop.cli.app import command
from diskhop.cli.options import COMMON, DatasetPath, Json
from diskhop.cli.output import print_json, print_pairs, stdout
from diskhop.errors import ConfigError

if TYPE_CHECKING:
    from diskhop.derived.clean import DerivedEntry


@command("clean")
def clean(
    dataset: DatasetPath,
    scratch: Annotated[
        Path | None,
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
    from diskhop.dataset.files import read_manifest
    from diskhop.derived.clean import list_derived, remove_unused

    read_manifest(dataset)
    if scratch is not None and not scratch.exists():
        raise ConfigError(f"{scratch}: there is no such folder; give --scratch as the run had it, or leave it out")
    folder = dataset / "derived" if scratch is None else scratch
    entries = list_derived(folder)
    removable = [entry for entry in entries if entry.kept_because is None]
    if not dry_run:
        entries = remove_unused(entries)
        removable = [entry for entry in entries if entry.is_removed]
    num_bytes = sum(entry.num_bytes or 0 for entry in removable)
    if as_json:
        facts = {"dataset": str(dataset), "folder": str(folder), "dry_run": dry_run}
        print_json(
            {
                **facts,
                "entries": [_document(entry) for entry in entries],
                "removed_bytes": 0 if dry_run else num_bytes,
            }
        )
        return
    if not entries:
        stdout.print(f"{folder}: there are no derived files", markup=False)
        return
    outcome = "would be removed" if dry_run else "removed"
    rows = [(entry.path.name, _outcome(entry, outcome)) for entry in entries]
    print_pairs([*rows, (outcome, f"{len(removable)} of {len(entries)}, {format_bytes(num_bytes)}")])


def _document(entry: DerivedEntry) -> dict[str, object]:
    return {
        "name": entry.path.name,
        "what": entry.what,
        **({} if entry.num_bytes is None else {"bytes": entry.num_bytes}),
        "kept_because": entry.kept_because,
        "removed": entry.is_removed,
    }


def _outcome(entry: DerivedEntry, outcome: str) -> str:
    if entry.num_bytes is None:
        return f"{entry.what}: left alone"
    kept = None if entry.kept_because is None else f"kept: {entry.kept_because}"
    return f"{entry.what}, {format_bytes(entry.num_bytes)}, {kept or outcome}"
