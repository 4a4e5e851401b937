"""The command that trains."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from diskhop.cli.app import command
from diskhop.cli.options import (
    ConfigFile,
    DatasetOfRun,
    Json,
    Out,
    Preset,
    Processes,
    Resume,
    TensorBoard,
    spell_options,
    takes_options,
)
from diskhop.cli.output import print_json, print_pairs, print_table, stderr
from diskhop.cli.processes import resume_of_run, run_in_processes
from diskhop.config.hop import HopConfig
from diskhop.config.link import LinkConfig
from diskhop.config.sampled import SampledConfig
from diskhop.config.typed import TypedConfig
from diskhop.config.typed_hop import TypedHopConfig
from diskhop.errors import ConfigError
from diskhop.run_files import NODE

_CONFIGS = (SampledConfig, HopConfig, TypedConfig, TypedHopConfig, LinkConfig)


@command("train")
@takes_options(*_CONFIGS)
def train(
    dataset: DatasetOfRun = None,
    *,
    out: Out = None,
    resume: Resume = False,
    preset: Preset = None,
    config: ConfigFile = None,
    tune: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            help="First try small changes of the options for so long, by validation; the run takes the best.",
            rich_help_panel="Optimisation",
        ),
    ] = None,
    tensorboard: TensorBoard = False,
    processes: Processes = None,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Train a model of nodes or links from disk; what diskhop chooses is printed with the reason."""
    if processes is not None:
        if tune is not None:
            raise ConfigError("--tune runs in one process: remove --processes, then train with the options it prints")
        own: dict[str, Any] = {"": dataset, "--out": out, "--preset": preset, "--config": config}
        own |= {"--resume": resume, "--tensorboard": tensorboard, "--json": as_json}
        way = partial(resume_of_run, NODE, out, processes)
        if run_in_processes("train", processes, own, given, *_CONFIGS, resume=way):
            return
    from diskhop.runs.start import train as train_model
    from diskhop.ui.summary import summarize
    from diskhop.ui.terminal import run_callbacks

    with run_callbacks(stderr, out, tensorboard=tensorboard) as callbacks:
        trained = train_model(
            dataset, out=out, resume=resume, preset=preset, config=config, callbacks=callbacks, tune=tune, **given
        )
    found = {} if tune is None else _tuned(trained.result["tuning"], dataset, preset, config, given)
    if as_json:
        print_json({**trained.result, **({"tuning": found} if found else {})})
        return
    if found:
        _print_trials(found)
    print_pairs(summarize(trained.result, out))
    if found:
        print_pairs([("without --tune", found["command"])])


def _tuned(
    tuning: Mapping[str, Any], dataset: Path | None, preset: str | None, config: Path | None, given: dict[str, Any]
) -> dict[str, Any]:
    """Return a search with the command that trains with its best options."""
    words = ["diskhop", "train", *([] if dataset is None else [str(dataset)])]
    for flag, value in (("--preset", preset), ("--config", config)):
        words += [] if value is None else [flag, str(value)]
    return {**tuning, "command": shlex.join([*words, *spell_options({**given, **tuning["chosen"]}, *_CONFIGS)])}


def _print_trials(tuning: Mapping[str, Any]) -> None:
    """Print a line per trial, and a star at those with the best options."""
    from diskhop.runs.tuning import Trial

    rows = []
    for trial in (Trial(**each) for each in tuning["trials"]):
        valid = "failed" if trial.valid is None else f"{trial.valid:.4f}"
        star = "*" if trial.changes == tuning["chosen"] else ""
        rows.append([star, trial.describe(), str(trial.epochs), valid, f"{trial.seconds:.1f}"])
    print_table(["", "changes", "epochs", f"validation {tuning['metric']}", "seconds"], rows)
