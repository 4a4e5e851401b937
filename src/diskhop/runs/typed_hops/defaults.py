"""Defaults of training on hop tables along paths, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diskhop.budget import format_bytes
from diskhop.config.typed_hop import FIXED, TypedHopConfig
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.merged import merged_spec, merged_types
from diskhop.errors import ConfigError
from diskhop.hops.paths import all_paths, parse_path
from diskhop.runs.choices import Choices, Resolved, presumed_memory
from diskhop.runs.fitting import check_training_options, require_fitting
from diskhop.runs.nodes.defaults import (
    choose_chunks,
    choose_hops,
    choose_machine,
    choose_objective,
    choose_steps,
    choose_task,
)
from diskhop.runs.nodes.task import NodeTask
from diskhop.runs.typed.defaults import choose_reversed
from diskhop.runs.typed.target import find_target, reversed_types
from diskhop.runs.typed_hops.spec import DEFAULT_STEPS


def resolve_typed_hop_config(
    dataset: Dataset, options: Mapping[str, Any], preset: str | None = None
) -> Resolved[TypedHopConfig, NodeTask]:
    """Complete options for a dataset, with the reason for every value that was chosen; see resolve_config()."""
    given = check_training_options(options, TypedHopConfig)
    require_fitting(dataset, given, TypedHopConfig, f"model '{given['model']}'")
    if preset is not None:
        raise ConfigError(f"preset '{preset}' is for graphs of one type, and {dataset.path} has several: remove it")
    choices = Choices(given)
    choose = choices.choose
    for name, value in FIXED.items():
        choices.complete.setdefault(name, value)
    target = choose("target", find_target(dataset, given.get("target")), "the only node type with labels")
    labelled = dataset.of_node_type(target)
    choose_reversed(dataset, choices)
    _choose_paths(dataset, target, choices)
    choose_hops(labelled, choices.complete["model"], choices)
    choose("hidden", 128, "wide enough for most graphs, fast on a CPU")
    choose("norm", "layer", "trains steadily at any batch size")
    choose("dropout", 0.5, "default regularisation")
    choose("lr", 0.003, "suits Adam with batches of some hundreds")
    memory_bytes = presumed_memory(given)
    task = choose_task(labelled, memory_bytes, choices)
    choose_steps(
        choices, len(task.seeds.train), f"training nodes of type {target}", has_valid=task.seeds.valid is not None
    )
    choose_objective(labelled, choices)
    choose("memory_bytes", memory_bytes, "half of the free memory", format_bytes(memory_bytes))
    choose_chunks(task, choices)
    choose_machine(choices)
    return Resolved(TypedHopConfig(**choices.complete), choices.made, task)


def _choose_paths(dataset: Dataset, target: str, choices: Choices) -> None:
    given = choices.given.get("paths", ())
    types = merged_types(dataset, merged_spec(dataset, reversed_types(choices.complete["reverse"])))
    for text in given:
        parse_path(text, dataset, types, target)
    if given and "hops" in choices.given and max(text.count(",") // 2 for text in given) > choices.given["hops"]:
        raise ConfigError("--hops is for runs that name no path, and a path is longer: remove --hops")
    longest = max((text.count(",") // 2 for text in given), default=DEFAULT_STEPS)
    hops = choices.choose("hops", longest, "steps of the longest path" if given else "most of what helps is this near")
    if not given:
        found = all_paths(dataset, types, target, hops)
        choices.choose("paths", found, f"all of up to {hops} steps from types with features", "; ".join(found))
