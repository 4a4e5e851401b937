"""The command that trains graph embeddings."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diskhop.cli.app import command
from diskhop.cli.options import (
    ConfigFile,
    DatasetOfRun,
    Executor,
    Json,
    Out,
    Preset,
    Processes,
    Resume,
    TensorBoard,
    Workers,
    takes_options,
)
from diskhop.cli.output import print_json, print_pairs, print_table, stderr
from diskhop.cli.processes import resume_of_run, run_in_processes
from diskhop.config.embed import EmbedConfig
from diskhop.errors import ConfigError
from diskhop.run_files import EMBEDDING

if TYPE_CHECKING:
    from diskhop.runs.search import Trial


@command("embed")
@takes_options(EmbedConfig)
def embed(
    dataset: DatasetOfRun = None,
    *,
    out: Out = None,
    resume: Resume = False,
    preset: Preset = None,
    config: ConfigFile = None,
    search: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Train N runs in --out with random options and print the best.",
            rich_help_panel="Optimisation",
        ),
    ] = None,
    tensorboard: TensorBoard = False,
    processes: Processes = None,
    executor: Executor = "",
    workers: Workers = None,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Train embeddings of a graph's nodes with a few partitions in memory; what diskhop chooses is printed."""
    from diskhop.runs.start import embed as train_embeddings
    from diskhop.ui.summary import summarize
    from diskhop.ui.terminal import run_callbacks

    if out is None:
        raise ConfigError("--out is missing: embeddings are written to a new folder; for example --out run")
    if processes is not None:
        if search is not None:
            raise ConfigError("--search trains its runs in one process: remove --processes")
        own: dict[str, Any] = {"": dataset, "--out": out, "--preset": preset, "--config": config}
        own |= {"--resume": resume, "--tensorboard": tensorboard, "--json": as_json}
        own |= {"--executor": executor or None, "--workers": workers}
        way = partial(resume_of_run, EMBEDDING, out, processes)
        if run_in_processes("embed", processes, own, given, EmbedConfig, resume=way):
            return
    if search is not None:
        if resume or config is not None:
            raise ConfigError("--search cannot be used with --resume or --config; leave them out")
        if executor or workers is not None:
            raise ConfigError("--search sorts the edges of its runs in one process: remove --executor and --workers")
        _search(search, dataset, out, preset, given, as_json=as_json)
        return
    with run_callbacks(stderr, out, tensorboard=tensorboard) as callbacks:
        embedded = train_embeddings(
            dataset,
            out=out,
            resume=resume,
            preset=preset,
            config=config,
            executor=executor,
            workers=workers,
            callbacks=callbacks,
            **given,
        )
    if as_json:
        print_json(embedded.result)
        return
    print_pairs(summarize(embedded.result, out))


def _search(
    trials: int, dataset: Path | None, out: Path, preset: str | None, given: dict[str, Any], *, as_json: bool
) -> None:
    """Run a search, print a line per trial as it is done, then all of them, the best first."""
    from diskhop.runs.search import search as search_options

    def show(number: int, trial: Trial) -> None:
        stderr.print(f"trial {number}/{trials}  {_valid_of(trial.valid)}  {trial.seconds:.1f} s  {trial.path}")

    found = search_options(dataset, out=out, trials=trials, preset=preset, on_trial=show, **given)
    if as_json:
        print_json({"trials": [{**asdict(trial), "path": str(trial.path)} for trial in found]})
        return
    names = list(found[0].options)
    rows = [
        [_valid_of(each.valid), f"{each.seconds:.1f}", *map(str, each.options.values()), each.path.name]
        for each in found
    ]
    print_table(["valid", "seconds", *names, "run"], rows)
    best = found[0].path
    print_pairs(
        [
            ("next", shlex.join(["diskhop", "evaluate", str(best)])),
            ("or", shlex.join(["diskhop", "embed", "--config", f"{best}/config.toml", "--out", "run"])),
        ]
    )


def _valid_of(valid: float | None) -> str:
    return "not finite" if valid is None else f"{valid:.4f}"
