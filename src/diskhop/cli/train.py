"""The command that trains."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

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
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.config.link import LinkConfig
from diskhop.config.train import HopConfig, SampledConfig
from diskhop.config.typed import TypedConfig
from diskhop.config.typed_hop import TypedHopConfig
from diskhop.errors import RankError
from diskhop.run_files import CONFIG_FILE, NODE, resume_command

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
    tensorboard: TensorBoard = False,
    processes: Processes = None,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Train a model of nodes or links from disk; what diskhop chooses is printed with the reason."""
    if processes is not None:
        from diskhop.runs.launch import launch, require_launchable

        require_launchable(processes, os.environ)
        if processes > 1:
            own = _spell(dataset, out, resume, preset, config, tensorboard, as_json)
            try:
                code = launch(["train", *own, *spell_options(given, *_CONFIGS)], processes)
            except RankError as error:
                if out is not None and (out / CONFIG_FILE).exists():
                    error.add_note(f"resume with: {resume_command(NODE, out)} --processes {processes}")
                raise
            if code:
                raise RankError([""], code)  # rank 0 has printed why
            return
    from diskhop.runs.start import train as train_model
    from diskhop.ui.summary import summarize
    from diskhop.ui.terminal import run_callbacks

    with run_callbacks(stderr, out, tensorboard=tensorboard) as callbacks:
        trained = train_model(
            dataset, out=out, resume=resume, preset=preset, config=config, callbacks=callbacks, **given
        )
    if as_json:
        print_json(trained.result)
        return
    print_pairs(summarize(trained.result, out))


def _spell(
    dataset: Path | None,
    out: Path | None,
    resume: bool,
    preset: str | None,
    config: Path | None,
    tensorboard: bool,
    as_json: bool,
) -> list[str]:
    """Write the command's own parameters as the words of a command line."""
    words = [] if dataset is None else [str(dataset)]
    for flag, value in (("--out", out), ("--preset", preset), ("--config", config)):
        words += [] if value is None else [flag, str(value)]
    for flag, is_on in (("--resume", resume), ("--tensorboard", tensorboard), ("--json", as_json)):
        words += [flag] if is_on else []
    return words
