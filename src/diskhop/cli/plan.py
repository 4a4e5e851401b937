"""The command that predicts what a run takes, by every strategy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diskhop.budget import format_bytes
from diskhop.cli.app import command
from diskhop.cli.options import COMMON, Json, Preset, spell_options, takes_options
from diskhop.cli.output import print_json, print_pairs, print_table, stdout
from diskhop.config.embed import EmbedConfig
from diskhop.config.link import LinkConfig
from diskhop.config.options import option_fields, require_known
from diskhop.config.predict import PredictConfig
from diskhop.config.train import TASKS, HopConfig, SampledConfig
from diskhop.config.typed import TypedConfig
from diskhop.config.typed_hop import TypedHopConfig
from diskhop.errors import ConfigError

if TYPE_CHECKING:
    from diskhop.planning.options import Option
    from diskhop.plans import RunPlan
    from diskhop.runs.predict.estimates import OutputPlan


_TRAIN, _PREDICT = "train", "predict"
_CONFIGS: Mapping[str, tuple[type[Any], ...]] = {
    _TRAIN: (SampledConfig, HopConfig, TypedConfig, TypedHopConfig, LinkConfig, EmbedConfig),
    _PREDICT: (PredictConfig,),
}


@command("plan")
@takes_options(*_CONFIGS[_TRAIN], *_CONFIGS[_PREDICT])
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
    ] = _TRAIN,
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
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Predict time, I/O and memory of every strategy without training, or of a prediction by a run."""
    require_known("task", task, (*_CONFIGS, *TASKS), "--task: ")
    if task in TASKS:
        given, task = {**given, "task": task}, _TRAIN
    of_training = {"--preset": preset, "--explain": explain}
    _require_options(task, given, of_training, {"--dataset": dataset})
    if task == _PREDICT:
        _plan_prediction(path, dataset, processes, as_json, given)
    else:
        _plan_training(path, preset, explain, processes, as_json, given)


def _require_options(
    task: str, given: Mapping[str, Any], of_training: Mapping[str, Any], of_prediction: Mapping[str, Any]
) -> None:
    """Raise ConfigError for an option of the other task. The last two: the command's own options and their values."""
    others = {_TRAIN: of_prediction, _PREDICT: of_training}[task]
    flags = [flag for flag, value in others.items() if value is not None]
    fields = {name: each for kinds in _CONFIGS.values() for kind in kinds for name, each in option_fields(kind).items()}
    known = {name for kind in _CONFIGS[task] for name in option_fields(kind)}
    flags += [fields[name].main_flag for name in given if name not in known]
    if flags:
        raise ConfigError(f"{flags[0]} has no effect with --task {task}; remove it")


def _plan_prediction(
    run: Path, dataset: Path | None, processes: int | None, as_json: bool, given: dict[str, Any]
) -> None:
    from diskhop.runs.predict.plan import plan_prediction

    planned = plan_prediction(run, dataset, processes=1 if processes is None else processes, **given)
    if as_json:
        print_json(planned.to_dict())
        return
    outputs = planned.outputs
    print_table(
        ["step", "seconds", "read", "written"],
        [
            [each.name, f"{each.seconds:.3g} s", format_bytes(each.bytes_read), format_bytes(each.bytes_written)]
            for each in outputs.steps
        ],
    )
    stdout.print()
    rows = [("model", f"{planned.model}, {planned.rows:,} nodes")]
    rows += [("time", f"{outputs.seconds:.3g} s (before the files are written)")]
    rows += [("I/O", f"{format_bytes(outputs.bytes_read)} read, {format_bytes(outputs.bytes_written)} written")]
    rows += [
        ("disk", f"{format_bytes(planned.disk_bytes)} at most, {format_bytes(planned.files_bytes)} of predictions")
    ]
    reserved = {name: num_bytes for name, num_bytes in outputs.reserved.items() if num_bytes}
    rows += _memory_rows(outputs, reserved)
    rows += [("plan" if number == 0 else "", reason) for number, reason in enumerate(outputs.reasons)]
    words = ["diskhop", "predict", str(run), *([] if dataset is None else ["--dataset", str(dataset)])]
    words += [] if processes is None else ["--processes", str(processes)]
    print_pairs([*rows, ("next", shlex.join([*words, *spell_options(given, PredictConfig), "--out", "predictions"]))])


def _plan_training(
    dataset: Path, preset: str | None, explain: str | None, processes: int | None, as_json: bool, given: dict[str, Any]
) -> None:
    from diskhop.dataset.dataset import open_dataset
    from diskhop.planning.options import OPTION_COLUMNS
    from diskhop.run_files import EMBEDDING, TYPED, TYPED_HOP, TYPED_LINK
    from diskhop.runs.data_use import edge_weights_of, ignored_parts
    from diskhop.runs.kinds import find_kind
    from diskhop.runs.plan import plan_run

    ranking = plan_run(dataset, preset=preset, processes=1 if processes is None else processes, **given)
    if explain is not None:
        names = [option.name for option in ranking.options]
        require_known("strategy", explain, names, "--explain: ")
        option = ranking.options[names.index(explain)]
        if as_json:
            print_json(option.to_dict())
        else:
            print_pairs(_explained(option))
        return
    if as_json:
        print_json({"epochs": ranking.epochs, "options": [option.to_dict() for option in ranking.options]})
        return
    print_table(OPTION_COLUMNS, list(ranking.rows()))
    stdout.print()
    rows = [("chosen" if number == 0 else "", reason) for number, reason in enumerate(ranking.best.reasons)]
    rows += [(f"not {option.name}", option.reason) for option in ranking.options[1:]]
    opened, model = open_dataset(dataset), given.get("model")
    kind = find_kind(model, given.get("task"), opened)
    ignored = ignored_parts(opened, kind.name)
    if kind.name not in (EMBEDDING, TYPED, TYPED_HOP, TYPED_LINK):
        asked = given.get("direction", "in"), given.get("edge_weights")
        weights = edge_weights_of(opened, model or "sage", *asked, is_drawn=given.get("weighted", False))
        ignored = [*([] if weights is None else [weights]), *ignored]
    rows += [(each.option.replace("_", " "), f"{each.value}: {each.why}") for each in ignored]
    print_pairs([*rows, ("next", _next_command(dataset, kind.command, preset, processes, given))])


def _explained(option: Option[Any]) -> list[tuple[str, str]]:
    rows = [("option", option.name), ("why", option.reason)]
    if option.predicted is None or option.plan is None:
        return rows
    for name, value in option.predicted.to_dict().items():
        if name.endswith("_bytes") or name.startswith("bytes_"):
            shown = format_bytes(value)
        elif name.endswith("_seconds"):
            shown = f"{value:.3g} s"
        else:
            shown = f"{value:.0%}" if name == "hit_rate" else f"{value:,}"
        rows.append((name.replace("_", " "), shown))
    reserved = {name: num_bytes for name, num_bytes in option.plan.reserved.items() if num_bytes}
    rows += _memory_rows(option.plan, reserved)
    rows += [("plan" if number == 0 else "", reason) for number, reason in enumerate(option.plan.reasons)]
    return rows


def _memory_rows(plan: RunPlan | OutputPlan, reserved: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return a line for each name of memory, with who has it."""
    whose = dict.fromkeys(reserved, "" if plan.num_processes == 1 else " for each process")
    whose |= dict.fromkeys(plan.shared, f" shared by {plan.num_processes} processes")
    return [(f"memory for {name}", format_bytes(num_bytes) + whose[name]) for name, num_bytes in reserved.items()]


def _next_command(dataset: Path, command: str, preset: str | None, processes: int | None, given: dict[str, Any]) -> str:
    words = ["diskhop", command, str(dataset)]
    words += [] if preset is None else ["--preset", preset]
    words += [] if processes is None else ["--processes", str(processes)]
    return shlex.join(
        [
            *words,
            *spell_options(given, SampledConfig, HopConfig, TypedConfig, TypedHopConfig, LinkConfig, EmbedConfig),
            "--out",
            "run",
        ]
    )
