"""The command that predicts for nodes by a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from diskhop.cli.app import command
from diskhop.cli.options import COMMON, Executor, Json, Overwrite, TaskProcesses, Workers, takes_options
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.cli.processes import run_in_processes
from diskhop.config.predict import PredictConfig
from diskhop.errors import ConfigError

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run of 'diskhop train'.", show_default=False)]
_PROGRESS = ("bars", "json")


@command("predict")
@takes_options(PredictConfig)
def predict(
    run: Run,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="New folder for the predictions.", rich_help_panel=COMMON)],
    dataset: Annotated[
        Path | None,
        typer.Option(
            metavar="DATASET",
            help="Dataset to predict for, such as tonight's; by default the run's own.",
            rich_help_panel=COMMON,
        ),
    ] = None,
    overwrite: Overwrite = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--no-resume",
            help="Continue from finished work of an interrupted call, or start over.",
            rich_help_panel=COMMON,
        ),
    ] = True,
    progress: Annotated[
        str,
        typer.Option(metavar="NAME", help="Progress on stderr: bars, or json for a line each.", rich_help_panel=COMMON),
    ] = "bars",
    executor: Executor = "",
    workers: Workers = None,
    processes: TaskProcesses = None,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Predict classes, probabilities or embeddings of all nodes, layer by layer from disk, by their source's ids."""
    if processes is not None:
        own: dict[str, Any] = {"": run, "--out": out, "--dataset": dataset, "--overwrite": overwrite}
        own |= {"--no-resume": not resume, "--progress": progress, "--json": as_json}
        own |= {"--executor": executor or None, "--workers": workers}
        if run_in_processes("predict", processes, own, given, PredictConfig):
            return
    from diskhop.api.predict import predict as predict_nodes
    from diskhop.ui.progress import json_progress, stage_progress

    if progress not in _PROGRESS:
        raise ConfigError(f"--progress must be one of {', '.join(_PROGRESS)}, got '{progress}'")
    opened = json_progress(stderr) if progress == "json" else stage_progress(stderr)
    with opened as show:
        done = predict_nodes(
            run,
            dataset=dataset,
            out=out,
            overwrite=overwrite,
            resume=resume,
            executor=executor,
            workers=workers,
            progress=show,
            on_plan=lambda text: None if progress == "json" else stderr.print(f"Predicting: {text}", markup=False),
            **given,
        )
    if as_json:
        print_json(done.result)
        return
    print_pairs(done.rows())
