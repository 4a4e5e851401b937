"""The command that predicts what a run takes, by every strategy."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diskhop.budget import format_bytes
from diskhop.cli.app import command
from diskhop.cli.options import COMMON, DatasetPath, Json, Preset, spell_options, takes_options
from diskhop.cli.output import print_json, print_pairs, print_table, stdout
from diskhop.config.embed import EmbedConfig
from diskhop.config.options import require_known
from diskhop.config.train import HopConfig, SampledConfig

if TYPE_CHECKING:
    from diskhop.planning.options import Option


@command("plan")
@takes_options(SampledConfig, HopConfig, EmbedConfig)
def plan(
    dataset: DatasetPath,
    *,
    preset: Preset = None,
    explain: Annotated[
        str | None,
        typer.Option(metavar="STRATEGY", help="Show all that is known of one strategy.", rich_help_panel=COMMON),
    ] = None,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Predict time, I/O and memory of every strategy without training."""
    from diskhop.dataset.dataset import open_dataset
    from diskhop.planning.options import OPTION_COLUMNS
    from diskhop.runs.data_use import ignored_parts
    from diskhop.runs.kinds import find_kind
    from diskhop.runs.plan import plan_run

    ranking = plan_run(dataset, preset=preset, **given)
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
    ignored = ignored_parts(open_dataset(dataset), find_kind(given.get("model")).name)
    rows += [(each.option, f"{each.value}: {each.why}") for each in ignored]
    print_pairs([*rows, ("next", _next_command(dataset, find_kind(given.get("model")).command, preset, given))])


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
    rows += [(f"memory for {name}", format_bytes(num_bytes)) for name, num_bytes in reserved.items()]
    rows += [("plan" if number == 0 else "", reason) for number, reason in enumerate(option.plan.reasons)]
    return rows


def _next_command(dataset: Path, command: str, preset: str | None, given: dict[str, Any]) -> str:
    words = ["diskhop", command, str(dataset)]
    words += [] if preset is None else ["--preset", preset]
    return shlex.join([*words, *spell_options(given, SampledConfig, HopConfig, EmbedConfig), "--out", "run"])
