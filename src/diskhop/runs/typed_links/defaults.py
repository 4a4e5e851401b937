"""Defaults of training on the edges of one type, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diskhop.budget import format_bytes
from diskhop.config.sampled import LEARNED
from diskhop.config.train import LINK
from diskhop.config.typed_link import TypedLinkConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.runs.choices import Choice, Choices, Resolved, presumed_memory
from diskhop.runs.fitting import check_training_options, require_fitting
from diskhop.runs.links.defaults import choose_link_steps, choose_links
from diskhop.runs.links.task import LinkTask
from diskhop.runs.nodes.defaults import choose_batches, choose_machine
from diskhop.runs.typed.defaults import choose_model, choose_reversed
from diskhop.runs.typed.target import reversed_types
from diskhop.runs.typed_links.target import draw_task, edge_target, find_edge_type


def resolve_typed_link_config(
    dataset: Dataset, options: Mapping[str, Any], preset: str | None = None
) -> Resolved[TypedLinkConfig, LinkTask]:
    """Complete options for a dataset, with the reason for every value that was chosen; see resolve_link_config()."""
    given = check_training_options(options, TypedLinkConfig)
    require_fitting(dataset, given, TypedLinkConfig, "--task link")
    if preset is not None:
        raise ConfigError(f"preset '{preset}' is for graphs of one type, and {dataset.path} has several: remove it")
    choices = Choices(given)
    choose = choices.choose
    choose("task", LINK, "options of links")
    choose_model(dataset, choices)
    target = find_edge_type(dataset, given.get("target"))
    choices.complete["target"] = target
    if "target" not in given:
        choices.made.append(Choice("target", target, "the only type of edges"))
    choose_reversed(dataset, choices)
    num_nodes = sum(nodes.num_nodes for nodes in dataset.nodes.values())
    choose_batches(choices, num_nodes, sum(edges.num_edges for edges in dataset.edges.values()))
    choose("hidden", 64, "wide enough for most graphs, fast on a CPU")
    choose_links(choices)
    without = [name for name, nodes in dataset.nodes.items() if nodes.feature_table() is None]
    if without:
        choose("features", LEARNED, f"{', '.join(without)} without features: rows that are learned")
    memory_bytes = presumed_memory(given)
    task = draw_task(
        dataset,
        edge_target(dataset, target, reversed_types(choices.complete["reverse"])),
        choices.complete["link_split"],
        given.get("split", 0),
        evaluate=given.get("evaluate", True),
        memory_bytes=memory_bytes,
    )
    choices.made.append(Choice("edges", "split", task.split.described))
    choose_link_steps(choices, task)
    choose("memory_bytes", memory_bytes, "half of the free memory", format_bytes(memory_bytes))
    choose_machine(choices)
    return Resolved(TypedLinkConfig(**choices.complete), choices.made, task)
