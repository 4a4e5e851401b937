"""The command that packs batches before training."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from diskhop.budget import format_bytes
from diskhop.cli.app import command
from diskhop.cli.options import ConfigFile, DatasetPath, Executor, Json, Preset, Workers, spell_options, takes_options
from diskhop.cli.output import print_json, print_pairs, stderr
from diskhop.config.train import SampledConfig


@command("pack")
@takes_options(SampledConfig)
def pack(
    dataset: DatasetPath,
    *,
    preset: Preset = None,
    config: ConfigFile = None,
    executor: Executor = "",
    workers: Workers = None,
    as_json: Json = False,
    given: dict[str, Any],
) -> None:
    """Pre-sample epochs and pack their features; `train` with the same options reuses them."""
    from diskhop.runs.nodes.packing import pack as pack_epochs
    from diskhop.ui.terminal import TerminalCallback

    with TerminalCallback(stderr) as terminal:
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
            ("next", _train_command(dataset, preset, config, given)),
        ]
    )


def _train_command(dataset: Path, preset: str | None, config: Path | None, given: dict[str, Any]) -> str:
    words = ["diskhop", "train", str(dataset)]
    words += [] if preset is None else ["--preset", preset]
    words += [] if config is None else ["--config", str(config)]
    options = spell_options({**given, "store": "packed"}, SampledConfig)
    return shlex.join([*words, *options, "--out", "run"])
