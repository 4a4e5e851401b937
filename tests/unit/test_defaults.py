"""Defaults in the help are those that a run has."""

from __future__ import annotations

from pathlib import Path

import pytest

from diskhop.config.options import option_fields, spell
from diskhop.config.train import HopConfig, SampledConfig, TrainConfig
from diskhop.runs.nodes.defaults import resolve_config
from tests.graphs import make_dataset

# Options whose default depends on the machine, on the dataset or on another option in a way that no word of the help
# repeats, or is none.
NOT_SPELT = {
    "features",
    "normalize_input",
    "residual",
    "self_term",
    "model",
    "memory_bytes",
    "total_memory_bytes",
    "disk_bytes",
    "scratch",
    "threads",
    "cache_bytes",
    "neighbor_cache_bytes",
    "superbatch",
    "matmul",
    "epochs",
    "chunk_rows",
    "class_weights",
    "patience",
    "task",
    "warm_start",
}


@pytest.mark.parametrize(("model", "kind"), [("sage", SampledConfig), ("sign", HopConfig), ("hoga", HopConfig)])
def test_a_default_in_the_help_is_what_a_run_has(tmp_path: Path, model: str, kind: type[TrainConfig]) -> None:
    dataset = make_dataset(tmp_path / "graph", num_nodes=4000, num_edges=9000, dim=16)
    config = resolve_config(dataset, {"model": model}).config
    for name, option in option_fields(kind).items():
        if not option.shown or option.shown == "chosen" or name in NOT_SPELT:
            continue
        value = getattr(config, name)
        value = value[0] if isinstance(value, tuple) else value
        # Chosen for some samplers only: a run without them has 0.
        words = ["0"] if option.shown.startswith("chosen (") else option.shown.replace(",", " ").split()
        assert spell(value) in words, f"--{name}: {option.shown}, and a run has {value}"
