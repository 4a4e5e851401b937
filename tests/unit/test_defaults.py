"""Defaults in the help are those that a run has."""

from __future__ import annotations

from pathlib import Path

import pytest

from diskhop.config.hop import HopConfig
from diskhop.config.options import option_fields, spell
from diskhop.config.sampled import SampledConfig
from diskhop.config.train import TrainConfig
from diskhop.runs.choices import Choices
from diskhop.runs.nodes.defaults import choose_batches, resolve_config
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


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # (10 + 10 * 10) / (20 + 20 * 20) of 1000.
        ({}, 261),
        ({"batch_size": 4000}, 1047),
        ({"fanout": (15, 10, 5)}, 108),
        ({"eval_fanout": (10,)}, 1000),
        ({"eval_fanout": (5,)}, 1000),
        ({"batch_size": 200}, 64),
        ({"batch_size": 30}, 30),
        ({"eval_batch_size": 7}, 7),
        # All neighbours: 100 in the mean.
        ({"eval_fanout": (-1,)}, 64),
        ({"sampler": "cluster"}, 1000),
    ],
)
def test_a_batch_of_evaluation_is_no_larger_than_one_of_training(given: dict[str, object], expected: int) -> None:
    choices = Choices(given)
    choose_batches(choices, 100_000, 10_000_000)
    assert choices.complete["eval_batch_size"] == expected


def test_a_small_graph_is_evaluated_in_large_batches() -> None:
    choices = Choices({})
    choose_batches(choices, 100_000, 2_000_000)
    assert choices.complete["eval_batch_size"] == 1000
