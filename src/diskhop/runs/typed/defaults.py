"""Defaults of training on a graph with types: presets, then choices that follow from the dataset, with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diskhop.budget import format_bytes
from diskhop.config.options import require_known
from diskhop.config.sampled import ALL_NEIGHBORS, LEARNED
from diskhop.config.typed import TypedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.nn.typed.models import TYPED_MODELS
from diskhop.runs.choices import Choices, Resolved, presumed_memory
from diskhop.runs.fitting import check_training_options, require_fitting
from diskhop.runs.nodes.defaults import (
    choose_batches,
    choose_machine,
    choose_objective,
    choose_steps,
    choose_task,
    load_preset,
)
from diskhop.runs.nodes.recipes import MOST_EDGES_FOR_ALL_NEIGHBORS
from diskhop.runs.nodes.task import NodeTask
from diskhop.runs.typed.target import NONE, find_reversed, find_target


def resolve_typed_config(
    dataset: Dataset, options: Mapping[str, Any], preset: str | None = None
) -> Resolved[TypedConfig, NodeTask]:
    """Complete options for a dataset, with the reason for every value that was chosen; see resolve_config()."""
    given = check_training_options(options, TypedConfig)
    if preset is not None:
        given = {**load_preset(preset, given.get("model")), **given}
    choices = Choices(given)
    choose_model(dataset, choices)
    require_fitting(dataset, given, TypedConfig, f"model '{choices.complete['model']}'")
    target = choices.choose("target", find_target(dataset, given.get("target")), "the only node type with labels")
    choose_reversed(dataset, choices)
    labelled = dataset.of_node_type(target)
    num_nodes = sum(nodes.num_nodes for nodes in dataset.nodes.values())
    num_edges = sum(edges.num_edges for edges in dataset.edges.values())
    if all(nodes.feature_table() is None for nodes in dataset.nodes.values()):
        _choose_for_learned(num_edges, choices)
    choose_batches(choices, num_nodes, num_edges)
    choices.choose("hidden", 64, "wide enough for most graphs, fast on a CPU")
    choices.choose("norm", "layer", "trains steadily at any batch size")
    choices.choose("dropout", 0.5, "default regularisation")
    choices.choose("lr", 0.003, "suits Adam with batches of some hundreds")
    without = [name for name, nodes in dataset.nodes.items() if nodes.feature_table() is None]
    if without:
        shown = ", ".join(without)
        choices.choose("features", LEARNED, f"{shown} without features: rows that are learned")
    memory_bytes = presumed_memory(given)
    task = choose_task(labelled, memory_bytes, choices)
    choose_steps(
        choices, len(task.seeds.train), f"training nodes of type {target}", has_valid=task.seeds.valid is not None
    )
    choose_objective(labelled, choices)
    choices.choose("memory_bytes", memory_bytes, "half of the free memory", format_bytes(memory_bytes))
    choose_machine(choices)
    return Resolved(TypedConfig(**choices.complete), choices.made, task)


def _choose_for_learned(num_edges: int, choices: Choices) -> None:
    """Choose what suits a graph without any features, whose rows are all learned and fit the training nodes soon."""
    choices.choose("dropout", 0.7, "all features are learned, which overfits easily")
    choices.choose("epochs", 50, "learned features fit soon")
    choices.choose("embedding_lr", 0.03, "all features are learned")
    layers = choices.choose("layers", max(2, len(choices.given.get("fanout", ()))), "two hops reach most of what helps")
    if num_edges <= MOST_EDGES_FOR_ALL_NEIGHBORS:
        choices.choose("fanout", (ALL_NEIGHBORS,) * layers, "all neighbours, since the graph is small")


def choose_model(dataset: Dataset, choices: Choices) -> None:
    """Choose the model. Raises ConfigError for one of graphs of one type."""
    has_features = any(nodes.feature_table() is not None for nodes in dataset.nodes.values())
    if has_features:
        choices.choose("model", "hetero-sage", "a sum per relation; works on any graph with types")
    else:
        choices.choose("model", "rgcn", "a matrix per relation; works without features")
    model = choices.complete["model"]
    if model not in TYPED_MODELS:
        raise ConfigError(
            f"--model {model} is for graphs of one type, and {dataset.path} has {len(dataset.nodes)} node types and "
            f"{len(dataset.edges)} edge types; use one of {', '.join(TYPED_MODELS)}"
        )
    require_known("model", model, TYPED_MODELS)


def choose_reversed(dataset: Dataset, choices: Choices) -> None:
    """Choose the edge types whose opposites are added."""
    given = choices.given.get("reverse")
    names = find_reversed(dataset, given)
    if given is None:
        choices.choose("reverse", names or (NONE,), "edge types without one in the other direction")
    else:
        choices.complete["reverse"] = names or (NONE,)
