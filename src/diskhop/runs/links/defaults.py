"""Defaults of training on links: presets, then choices that follow from the graph, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diskhop.budget import format_bytes
from diskhop.config.learning import CROSS_ENTROPY
from diskhop.config.link import BINARY, DEFAULT_SHARES, TRIPLET, LinkConfig
from diskhop.config.options import check_options
from diskhop.config.train import LINK
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.nn.models import LAYERS
from diskhop.protocols import Purpose
from diskhop.run_files import NODE
from diskhop.runs.choices import Choice, Choices, Resolved, presumed_memory, read_preset, with_preset
from diskhop.runs.data_use import ignored_parts
from diskhop.runs.fitting import check_training_options, require_fitting
from diskhop.runs.links.task import LinkTask, read_link_task
from diskhop.runs.nodes.defaults import choose_edge_weights, choose_machine, choose_sampling, choose_steps

_PRESETS = Path(__file__).parents[1] / "presets" / "link"
# Messages do not use the edges of the batch: with all edges in one, none would be left.
_FEWEST_BATCHES = 10
_WHY_FEWEST = "a tenth at most, as messages leave out a batch's own edges"


def load_link_preset(name: str, model: str | None) -> dict[str, Any]:
    """Return a preset's options for a model, by default its own; a table named like the model refines them."""
    chosen, content, refinement = read_preset(_PRESETS, name, model, LAYERS)
    return check_options({**content, **refinement, "model": chosen}, f"preset '{name}'", (LinkConfig,))


def resolve_link_config(
    dataset: Dataset, options: Mapping[str, Any], preset: str | None = None
) -> Resolved[LinkConfig, LinkTask]:
    """Complete options for a graph, with the reason for every value that was chosen.

    Options win over the preset, and the preset over the choices made here. Raises ConfigError for options that cannot
    work, and for a split that leaves a part without edges.
    """
    given = check_training_options(options, LinkConfig)
    require_fitting(dataset, given, LinkConfig, "--task link")
    if preset is not None:
        given = with_preset(load_link_preset(preset, given.get("model")), given)
    choices = Choices(given)
    choose = choices.choose
    choose("task", LINK, "options of links")
    model = choose("model", "sage", "learns from sampled neighbours, on any graph")
    if model not in LAYERS:
        raise ConfigError(f"--task link is for {', '.join(LAYERS)}, not for model '{model}': use --model sage")
    choose_sampling(dataset, choices)
    choose("hidden", 128, "wide enough for most graphs, fast on a CPU")
    choose_links(choices)
    memory_bytes = presumed_memory(given)
    task = read_link_task(
        dataset,
        choices.complete["link_split"],
        given.get("split", 0),
        evaluate=given.get("evaluate", True),
        memory_bytes=memory_bytes,
    )
    choices.made.append(Choice("edges", "split", task.split.described))
    choose_edge_weights(dataset, model, choices)
    choices.made += ignored_parts(dataset, NODE)
    choose_link_steps(choices, task)
    choose("memory_bytes", memory_bytes, "half of the free memory", format_bytes(memory_bytes))
    choose_machine(choices)
    return Resolved(LinkConfig(**choices.complete), choices.made, task)


def choose_links(choices: Choices) -> None:
    """Choose what links have in addition to nodes: embeddings, negatives, a split, and how they are measured."""
    choose = choices.choose
    choose("dim", choices.complete["hidden"], "as wide as the hidden layers")
    choose("norm", "layer", "trains steadily at any batch size")
    choose("dropout", 0.0, "negatives are new in every batch, which regularises")
    choose("lr", 0.003, "suits Adam with batches of some hundreds")
    loss = choose("loss", CROSS_ENTROPY, "usual for links")
    is_pairs = loss == CROSS_ENTROPY
    choose("neg_sampling", BINARY if is_pairs else TRIPLET, "pairs of nodes" if is_pairs else f"{loss} compares ends")
    choose("metric", "auc", "edges against as many random pairs")
    choose("link_split", DEFAULT_SHARES, "the graph has no split of edges")


def choose_link_steps(choices: Choices, task: LinkTask) -> None:
    """Choose the batch size and the number of epochs by the number of training edges."""
    choose_steps(
        choices,
        task.num_edges[Purpose.TRAIN],
        "training edges",
        has_valid=Purpose.VALID in task.used,
        fewest_batches=_FEWEST_BATCHES,
        why=_WHY_FEWEST,
    )
