"""The command that measures finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from diskhop.cli.app import command
from diskhop.cli.options import COMMON, Executor, Json, TaskProcesses, Workers, takes_options
from diskhop.cli.output import print_json, print_pairs, print_table, stderr, stdout
from diskhop.cli.processes import run_in_processes
from diskhop.config.embed import EVALUATED, EmbedConfig


@command("evaluate")
@takes_options(EmbedConfig, only=EVALUATED, shown="default: as in the run")
def evaluate(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="Folder of a run of 'diskhop train' or 'diskhop embed'.", show_default=False
        ),
    ],
    *,
    part: Annotated[
        str | None,
        typer.Option(
            metavar="PART",
            help="Nodes to measure on: train, valid or test (default: each); links: edges, by default valid and test; "
            "embeddings: edges to rank, test (default) or valid.",
            rich_help_panel=COMMON,
        ),
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(
            metavar="DATASET",
            help="Labelled dataset to measure a node classifier on; by default the run's own.",
            rich_help_panel=COMMON,
        ),
    ] = None,
    executor: Executor = "",
    workers: Workers = None,
    processes: TaskProcesses = None,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Measure a node classifier or a link model on each part of its split, or rank edges by trained embeddings."""
    if processes is not None:
        own: dict[str, Any] = {"": run, "--part": part, "--dataset": dataset, "--json": as_json}
        own |= {"--executor": executor or None, "--workers": workers}
        if run_in_processes("evaluate", processes, own, given, EmbedConfig):
            return
    from diskhop.api.evaluate import evaluate as evaluate_run
    from diskhop.run_files import EMBEDDING, LINK_RUN
    from diskhop.ui.evaluation import column_table, evaluation_rows, part_table, shown_part
    from diskhop.ui.progress import stage_progress
    from diskhop.ui.summary import summarize_ranking

    with stage_progress(stderr) as progress:
        found = evaluate_run(
            run, part=part, dataset=dataset, executor=executor, workers=workers, progress=progress, **given
        ).result
    if as_json:
        print_json(found)
    elif found["kind"] == EMBEDDING:
        print_pairs(summarize_ranking(found["part"], found))
    elif found["kind"] == LINK_RUN:
        print_table(*part_table(found))
        stdout.print()
        print_pairs([("ranks" if not number else "", note) for number, note in enumerate(found["notes"])])
    else:
        shown = shown_part(found)
        for table in (part_table(found), column_table(found, shown)):
            print_table(*table)
            stdout.print()
        print_pairs([*evaluation_rows(found, shown), ("next", f"diskhop report {found['run']}")])
