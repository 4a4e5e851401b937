"""The command that packs batches before training."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diskhop.cli.app import command
from diskhop.cli.options import ConfigFile, DatasetPath, Executor, Json, Preset, Workers, spell_options, takes_options
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.config.sampled import SampledConfig

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
    from diskhop.api.pack import pack as pack_batches
    from diskhop.ui.terminal import TerminalCallback

    with TerminalCallback(stderr) as terminal:
        packed = pack_batches(
            dataset,
            preset=preset,
            config=config,
            samples=samples,
            executor=executor,
            workers=workers,
            callbacks=[terminal],
            **given,
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
    next_step = _train_command(dataset, preset, config, given) if samples is None else _loader_call(dataset, layout)
    print_pairs([*packed.rows(), ("next", next_step)])


def _loader_call(dataset: Path, layout: Layout) -> str:
    return f"diskhop.PackedLoader({str(dataset)!r}, {str(layout.path)!r})"


def _train_command(dataset: Path, preset: str | None, config: Path | None, given: dict[str, Any]) -> str:
    words = ["diskhop", "train", str(dataset)]
    words += [] if preset is None else ["--preset", preset]
    words += [] if config is None else ["--config", str(config)]
    options = spell_options({**given, "store": "packed"}, SampledConfig)
    return shlex.join([*words, *options, "--out", "run"])
