"""The command that packs batches before training."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diskhop.budget import format_bytes
from diskhop.cli.app import command
from diskhop.cli.options import ConfigFile, DatasetPath, Executor, Json, Preset, Workers, spell_options, takes_options
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.config.options import option_fields
from diskhop.config.train import SampledConfig
from diskhop.errors import ConfigError

if TYPE_CHECKING:
    from diskhop.stores.packed.layout import Layout

Samples = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Pack batches that were sampled elsewhere: a .npz file each, with seeds, nodes and edge_index.",
        show_default=False,
        rich_help_panel="Sampling",
    ),
]
# Options that do not change samples, and their names as arguments of pack_samples().
_WITH_SAMPLES = {
    "memory_bytes": "memory",
    "cache_bytes": "cache",
    "disk_bytes": "disk",
    "scratch": "scratch",
    "engine": "engine",
    "threads": "threads",
}


@command("pack")
@takes_options(SampledConfig)
def pack(
    dataset: DatasetPath,
    *,
    preset: Preset = None,
    config: ConfigFile = None,
    samples: Samples = None,
    executor: Executor = "",
    workers: Workers = None,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Pre-sample epochs and pack their features; `train` with the same options reuses them."""
    from diskhop.runs.nodes.pack_samples import pack_samples
    from diskhop.runs.nodes.packing import pack as pack_epochs
    from diskhop.ui.terminal import TerminalCallback

    chosen = {"--preset": preset, "--config": config, "--executor": executor or None, "--workers": workers}
    if samples is not None:
        _require_samples_alone(chosen, given)
    with TerminalCallback(stderr) as terminal:
        if samples is not None:
            arguments = {_WITH_SAMPLES[name]: value for name, value in given.items()}
            packed = pack_samples(dataset, samples, callbacks=[terminal], **arguments)
        else:
            packed = pack_epochs(
                dataset, preset=preset, config=config, executor=executor, workers=workers, callbacks=[terminal], **given
            )
    layout = packed.layout
    if as_json:
        print_json(
            {
                "path": str(layout.path),
                "bytes": layout.num_bytes,
                "rows_in_memory": layout.num_held,
                "epochs": [asdict(epoch) for epoch in layout.epochs],
                "preparation": packed.steps,
            }
        )
        return
    num_batches = sum(epoch.num_batches for epoch in layout.epochs)
    seconds = sum(step["seconds"] for step in packed.steps)
    per_epoch = f"{seconds:.1f} s, {seconds / len(layout.epochs):.1f} s per epoch"
    print_pairs(
        [
            ("packed" if packed.steps else "packed before", f"{layout.path}, {format_bytes(layout.num_bytes)}"),
            ("epochs", f"{len(layout.epochs)}, {num_batches:,} batches"),
            ("rows in memory", f"{layout.num_held:,}"),
            *([("took", per_epoch)] if packed.steps else []),
            (
                "next",
                _train_command(dataset, preset, config, given) if samples is None else _loader_call(dataset, layout),
            ),
        ]
    )


def _require_samples_alone(chosen: dict[str, Any], given: dict[str, Any]) -> None:
    """Refuse options that decide which samples are drawn, or how."""
    fields = option_fields(SampledConfig)
    others = [flag for flag, value in chosen.items() if value is not None]
    others += [fields[name].main_flag for name in given if name not in _WITH_SAMPLES]
    if others:
        raise ConfigError(f"{others[0]} has no effect with --samples, which has the batches; remove one of them")


def _loader_call(dataset: Path, layout: Layout) -> str:
    return f"diskhop.PackedLoader({str(dataset)!r}, {str(layout.path)!r})"


def _train_command(dataset: Path, preset: str | None, config: Path | None, given: dict[str, Any]) -> str:
    words = ["diskhop", "train", str(dataset)]
    words += [] if preset is None else ["--preset", preset]
    words += [] if config is None else ["--config", str(config)]
    options = spell_options({**given, "store": "packed"}, SampledConfig)
    return shlex.join([*words, *options, "--out", "run"])
