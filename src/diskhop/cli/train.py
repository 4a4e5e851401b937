"""The command that trains."""

from __future__ import annotations

from functools import partial
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
    takes_options,
)
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.cli.processes import resume_of_run, run_in_processes
from diskhop.config.link import LinkConfig
from diskhop.config.train import HopConfig, SampledConfig
from diskhop.config.typed import TypedConfig
from diskhop.config.typed_hop import TypedHopConfig
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
    tensorboard: TensorBoard = False,
    processes: Processes = None,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Train a model of nodes or links from disk; what diskhop chooses is printed with the reason."""
    if processes is not None:
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
            dataset, out=out, resume=resume, preset=preset, config=config, callbacks=callbacks, **given
        )
    if as_json:
        print_json(trained.result)
        return
    print_pairs(summarize(trained.result, out))
