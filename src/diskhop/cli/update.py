"""The commands that change a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from diskhop.cli.app import command
from diskhop.cli.import_graph import Reports
from diskhop.cli.options import DatasetPath, Json, takes_options
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.config.train import TrainConfig
from diskhop.importing.options import ImportOptions
from diskhop.updating.options import OF_DELTAS


@command("update")
@takes_options(ImportOptions, only=OF_DELTAS)
@takes_options(TrainConfig, only=("memory_bytes", "threads"))
def update_command(
    dataset: DatasetPath,
    delta: Annotated[
        Path,
        typer.Argument(
            metavar="DELTA",
            help="A folder with edges, removed-edges and nodes (.parquet or .csv), or one of these files.",
        ),
    ],
    *,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Add and remove edges, add and change nodes: readers keep the old state, a crash leaves it."""
    from diskhop.api.update import update
    from diskhop.dataset.verify import describe
    from diskhop.ui.progress import stage_progress
    from diskhop.ui.summary import summarize_dataset

    facts: dict[str, Any] = {}
    reports = Reports(delta)
    with stage_progress(stderr) as progress:
        updated = update(
            dataset,
            delta,
            progress=progress,
            on_decisions=reports.decide,
            on_estimate=reports.estimate,
            on_facts=facts.update,
            **given,
        )
    if as_json:
        print_json({**describe(updated), "update": {**facts, **reports.facts}})
        return
    (made, name), *rows = summarize_dataset(updated, "updated")
    changes = [(key.replace("_", " "), f"{number:,}") for key, number in facts.items()]
    print_pairs([(made, name), *changes, *rows])


@command("compact")
@takes_options(TrainConfig, only=("memory_bytes", "threads"))
def compact_command(dataset: DatasetPath, *, as_json: Json = False, given: dict[str, Any]) -> None:
    """Make an updated dataset what an import of the whole would be, and remove old generations."""
    from diskhop.api.update import compact
    from diskhop.dataset.dataset import open_dataset
    from diskhop.dataset.verify import describe
    from diskhop.ui.progress import stage_progress
    from diskhop.ui.summary import summarize_dataset

    with stage_progress(stderr) as progress:
        before = open_dataset(dataset).hash
        compacted = compact(dataset, progress=progress, **given)
    if as_json:
        print_json(describe(compacted))
    else:
        is_same = compacted.hash == before
        print_pairs(summarize_dataset(compacted, "unchanged, not updated since its import" if is_same else "compacted"))
