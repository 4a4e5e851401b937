"""The command that predicts what a run takes, by every strategy."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diskhop.cli.app import command
from diskhop.cli.options import COMMON, Json, Overwrite, Preset, spell_options, takes_options
from diskhop.cli.output import print_json, print_pairs, print_table, stderr, stdout
from diskhop.config.embed import EmbedConfig
from diskhop.config.hop import HopConfig
from diskhop.config.link import LinkConfig
from diskhop.config.predict import PredictConfig
from diskhop.config.sampled import SampledConfig
from diskhop.config.train import TASKS
from diskhop.config.typed import TypedConfig
from diskhop.config.typed_hop import TypedHopConfig

if TYPE_CHECKING:
    from diskhop.planning.options import Ranking
    from diskhop.runs.predict.plan import PredictionPlan

PLANNED = (SampledConfig, HopConfig, TypedConfig, TypedHopConfig, LinkConfig, EmbedConfig)


@command("plan")
@takes_options(*PLANNED, PredictConfig)
def plan(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="DATASET", help="Folder of a dataset; with --task predict, of a run.", show_default=False
        ),
    ],
    *,
    task: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Work to plan: train (or its task: classification, multilabel, regression or link), or predict by "
            "a run.",
            rich_help_panel=COMMON,
        ),
    ] = "train",
    dataset: Annotated[
        Path | None,
        typer.Option(
            metavar="DATASET", help="Dataset to predict for; by default the run's own.", rich_help_panel=COMMON
        ),
    ] = None,
    preset: Preset = None,
    explain: Annotated[
        str | None,
        typer.Option(metavar="STRATEGY", help="Show all that is known of one strategy.", rich_help_panel=COMMON),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Plan for N processes on this machine, which share its memory, threads and disk.",
            rich_help_panel="Advanced",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="Write a page: time and I/O of every strategy, and the division of memory.",
            rich_help_panel=COMMON,
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Predict time, I/O and memory of every strategy without training, or of a prediction by a run."""
    from diskhop.api.pages import page_row
    from diskhop.api.plan import plan as plan_work
    from diskhop.planning.options import Option
    from diskhop.runs.predict.plan import PredictionPlan
    from diskhop.ui.still_working import StillWorking

    with StillWorking(stderr):
        found = plan_work(
            path,
            task=task,
            dataset=dataset,
            preset=preset,
            explain=explain,
            processes=processes,
            html=html,
            overwrite=overwrite,
            **given,
        )
    if as_json:
        print_json(found.to_dict() | ({} if html is None else {"page": str(html)}))
        return
    if isinstance(found, PredictionPlan):
        _print_prediction(found, path, dataset, processes, given)
    elif isinstance(found, Option):
        print_pairs(found.facts())
    else:
        _print_ranking(found, path, preset, processes, {**given, **({"task": task} if task in TASKS else {})})
    if html is not None:
        stdout.print()
        print_pairs([page_row(html)])


def _print_prediction(
    planned: PredictionPlan, run: Path, dataset: Path | None, processes: int | None, given: dict[str, Any]
) -> None:
    from diskhop.runs.predict.plan import STEP_COLUMNS

    print_table(STEP_COLUMNS, planned.step_rows())
    stdout.print()
    words = ["diskhop", "predict", str(run), *([] if dataset is None else ["--dataset", str(dataset)])]
    words += [] if processes is None else ["--processes", str(processes)]
    print_pairs(
        [*planned.facts(), ("next", shlex.join([*words, *spell_options(given, PredictConfig), "--out", "predictions"]))]
    )


def _print_ranking(
    ranking: Ranking[Any], dataset: Path, preset: str | None, processes: int | None, given: dict[str, Any]
) -> None:
    from diskhop.dataset.dataset import open_dataset
    from diskhop.planning.options import OPTION_COLUMNS
    from diskhop.run_files import EMBEDDING, TYPED, TYPED_HOP, TYPED_LINK
    from diskhop.runs.data_use import edge_weights_of, ignored_parts
    from diskhop.runs.kinds import find_kind

    print_table(OPTION_COLUMNS, list(ranking.rows()))
    stdout.print()
    rows = ranking.facts()
    opened, model = open_dataset(dataset), given.get("model")
    kind = find_kind(model, given.get("task"), opened)
    ignored = ignored_parts(opened, kind.name)
    if kind.name not in (EMBEDDING, TYPED, TYPED_HOP, TYPED_LINK):
        asked = given.get("direction", "in"), given.get("edge_weights")
        weights = edge_weights_of(opened, model or "sage", *asked, is_drawn=given.get("weighted", False))
        ignored = [*([] if weights is None else [weights]), *ignored]
    rows += [(each.option.replace("_", " "), f"{each.value}: {each.why}") for each in ignored]
    print_pairs([*rows, ("next", _next_command(dataset, kind.command, preset, processes, given))])


def _next_command(dataset: Path, command: str, preset: str | None, processes: int | None, given: dict[str, Any]) -> str:
    words = ["diskhop", command, str(dataset)]
    words += [] if preset is None else ["--preset", preset]
    words += [] if processes is None else ["--processes", str(processes)]
    return shlex.join(
        [
            *words,
            *spell_options(given, *PLANNED),
            "--out",
            "run",
        ]
    )
