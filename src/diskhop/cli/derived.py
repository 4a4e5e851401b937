"""Commands for derived files: what diskhop makes of a dataset ahead and would make again."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from diskhop.budget import format_bytes
from diskhop.cli.app import DatasetPath, Json, Memory, Threads, app
from diskhop.cli.output import parse_counts, print_json, print_pairs, stderr, stdout
from diskhop.dataset.files import read_manifest
from diskhop.derived.clean import DerivedEntry, list_derived, remove_unused
from diskhop.errors import ConfigError


@app.command()
def pack(
    dataset: DatasetPath,
    model: Annotated[str | None, typer.Option(help="As in training: with a preset, whose options are taken.")] = None,
    memory: Memory = None,
    cache: Annotated[str | None, typer.Option(help="Of --memory, for the rows asked for most.")] = None,
    disk: Annotated[
        str | None, typer.Option(help="For what is packed, as 100GB; default: half of what is free.")
    ] = None,
    scratch: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where it is put; default: DATASET/derived.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="To pack, each with samples of its own.")] = None,
    reuse: Annotated[bool, typer.Option("--reuse", help="Only the first epoch's: training takes them again.")] = False,
    max_batches: Annotated[int | None, typer.Option(help="Of an epoch; 0 for all.")] = None,
    layers: Annotated[int | None, typer.Option(help="One for each hop.")] = None,
    fanout: Annotated[str | None, typer.Option(help="Neighbours drawn per hop, as 10,10; -1 for all.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Seeds a batch.")] = None,
    split: Annotated[int | None, typer.Option(help="Which of several splits.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything that is drawn.")] = None,
    preset: Annotated[str | None, typer.Option(help="Options that reach published figures, by name.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Options as RUN/config.toml has them.")] = None,
    engine: Annotated[str | None, typer.Option(help="How the disk is read: auto, uring, threads.")] = None,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Sample the epochs of a training run ahead and pack their rows; `train` with the same options finds them."""
    # Here, not above: these bring PyTorch, which the other commands do without.
    from diskhop.runs import pack as pack_epochs
    from diskhop.ui.terminal import TerminalWatcher

    options: dict[str, Any] = {
        "model": model,
        "epochs": epochs,
        "reuse": reuse or None,
        "max_batches": max_batches,
        "layers": layers,
        "fanout": None if fanout is None else parse_counts("--fanout", fanout),
        "batch_size": batch_size,
        "split": split,
        "seed": seed,
        "scratch": None if scratch is None else str(scratch.absolute()),
        "engine": engine,
        "threads": threads,
    }
    given = {name: value for name, value in options.items() if value is not None}
    with TerminalWatcher(stderr) as watcher:
        packed = pack_epochs(
            dataset, preset=preset, config=config, memory=memory, cache=cache, disk=disk, watcher=watcher, **given
        )
    layout = packed.layout
    num_bytes = sum(epoch.num_bytes for epoch in layout.epochs) + layout.num_held * layout.row_bytes
    if as_json:
        print_json(
            {
                "path": str(layout.path),
                "bytes": num_bytes,
                "rows_in_memory": layout.num_held,
                "epochs": [asdict(epoch) for epoch in layout.epochs],
                "preparation": packed.steps,
            }
        )
        return
    num_batches = sum(epoch.num_batches for epoch in layout.epochs)
    seconds = sum(step["seconds"] for step in packed.steps)
    print_pairs(
        [
            ("packed" if packed.steps else "was packed before", f"{layout.path}, {format_bytes(num_bytes)}"),
            ("epochs", f"{len(layout.epochs)}, {num_batches:,} batches"),
            ("rows in memory", f"{layout.num_held:,}"),
            *([("took", f"{seconds:.1f} s, {seconds / len(layout.epochs):.1f} s an epoch")] if packed.steps else []),
            ("next", f"diskhop train {shlex.quote(str(dataset))} --store packed, with the same options"),
        ]
    )


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
    """List derived files (scratch of runs, packed layouts, hop tables) and remove those that nobody uses."""
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
