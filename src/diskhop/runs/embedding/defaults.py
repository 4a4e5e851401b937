"""Defaults of embeddings: presets, then choices that follow from the graph, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from diskhop.budget import format_bytes
from diskhop.config.embed import DEFAULT_EVAL_EDGES, DEVICE_MODELS, EmbedConfig
from diskhop.config.options import AUTO, check_options, load_config, require_known
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.graph_edges import embedded_nodes
from diskhop.embedding.scoring.losses import LOSSES
from diskhop.embedding.scoring.scores import SCORES
from diskhop.errors import ConfigError
from diskhop.loaders.destination import memory_for_rows
from diskhop.nn.devices import CPU, ChosenDevice, choose_device, read_cuda
from diskhop.planning.embeddings.partitions import choose_partitions, config_of_rank
from diskhop.planning.embeddings.size import _count_edges, embed_size
from diskhop.run_files import EMBEDDING
from diskhop.runs.choices import Choice, Choices, Resolved, presumed_memory, read_preset
from diskhop.runs.data_use import ignored_parts
from diskhop.runs.embedding.folder import EmbeddingFolder
from diskhop.runs.embedding.recipes import choose_embedding_defaults
from diskhop.runs.embedding.warm_start import SHARED_OPTIONS
from diskhop.runtime.ranks import ONE, Ranks
from diskhop.system.memory import default_threads

_PRESETS = Path(__file__).parents[1] / "presets" / "embed"
_MOST_SHARE = 0.05
_WANTED_STEPS, _MOST_EPOCHS = 2000, 100


def load_embed_preset(name: str, model: str | None) -> dict[str, Any]:
    """Return a preset's options for a model, by default its own; a table named like the model refines them."""
    chosen, content, refinement = read_preset(_PRESETS, name, model, SCORES)
    return check_options({**content, **refinement, "model": chosen}, f"preset '{name}'", (EmbedConfig,))


def resolve_embed_config(
    dataset: Dataset, options: Mapping[str, Any], preset: str | None, ranks: Ranks = ONE
) -> Resolved[EmbedConfig, None]:
    """Complete options for a graph, with the reason for every value that was chosen.

    Options win over the preset, and the preset over the choices made here. Raises ConfigError for options that cannot
    work.

    ranks: the processes that train together.
    """
    given = check_options(options, "embedding", (EmbedConfig,))
    if preset is not None:
        given = {**load_embed_preset(preset, given.get("model")), **given}
    choices = Choices(given)
    choose, complete = choices.choose, choices.complete
    num_edges = _count_edges(dataset)
    if given.get("warm_start"):
        _choose_architecture(choices, Path(given["warm_start"]))
    _choose_model(dataset, choices)
    if preset is None:
        num_nodes = embedded_nodes(dataset).num_nodes
        sizes = num_nodes, num_edges, dataset.num_relations
        for default in choose_embedding_defaults(*sizes, complete["model"], choices.complete.copy()):
            choose(*default)
    choose("dim", 100, "a common width")
    SCORES[complete["model"]].relation_dim(complete["dim"])
    batch_size = choose("batch_size", max(1, min(50_000, num_edges // 20)), f"of {num_edges:,} edges")
    choose("chunk_size", min(batch_size, 1000), "edges that share negatives")
    choose("negatives", min(1000, max(1, embedded_nodes(dataset).num_nodes)), "per side, shared by a chunk")
    choose("lr", 0.1, "suits Adagrad")
    choose("init_scale", 0.1 if dataset.num_relations else 0.01, "small compared with trained values")
    num_batches = max(1, num_edges // batch_size)
    epochs = min(_MOST_EPOCHS, -(-_WANTED_STEPS // num_batches))
    choose("epochs", epochs, f"{num_batches} batches each, {epochs * num_batches} steps")
    _choose_evaluation(dataset, num_edges, choices)
    choose("partition_order", AUTO, "the order with the fewest swaps")
    memory_bytes = presumed_memory(given)
    choose("memory_bytes", memory_bytes, "half of the free memory", format_bytes(memory_bytes))
    _choose_device(choices)
    choose("engine", AUTO, "the fastest that works here")
    choose("threads", default_threads(), "the cores this process may use")
    choose("buffer", min(3, max(2, given.get("partitions", 3))), "the fewest that let swaps overlap training")
    if "partitions" not in given:
        tried = config_of_rank(EmbedConfig(**{**complete, "partitions": 1}), ranks)
        chosen = choose_partitions(tried, embed_size(dataset, tried), ranks)
        complete |= {"partitions": chosen.partitions, "buffer": chosen.buffer}
        why = f"the fewest that fit {format_bytes(complete['memory_bytes'])}"
        why += f" and {ranks.count} processes" if ranks.count > 1 else ""
        choices.made.append(Choice("partitions", str(chosen.partitions), why))
    choices.made += ignored_parts(dataset, EMBEDDING)
    return Resolved(EmbedConfig(**complete), choices.made, None)


def _choose_architecture(choices: Choices, run: Path) -> None:
    """Take what embeddings of another run must share with this one's."""
    folder = EmbeddingFolder(run)
    if not folder.config_path.exists():
        return  # opening the run says what is wrong
    saved = load_config(folder.config_path, (EmbedConfig,)).options
    for name in SHARED_OPTIONS:
        if name in saved:
            choices.choose(name, saved[name], f"as in the run of --warm-start, {run.name}")


def _choose_model(dataset: Dataset, choices: Choices) -> None:
    """Choose a model for edges with or without relations, and a loss."""
    if dataset.num_relations:
        model = choices.choose("model", "complex", "scores each relation in both directions")
    else:
        model = choices.choose("model", "dot", "the edges have no relations")
    require_known("model", model, SCORES)
    if SCORES[model].uses_relations and not dataset.num_relations:
        raise ConfigError(f"model '{model}' is for edges with relations, {dataset.path} has none; use --model dot")
    require_known("loss", choices.choose("loss", "softmax", "learns most from the hardest negatives"), LOSSES)


def _choose_device(choices: Choices) -> None:
    """Choose the device for 'auto', and the memory there that a run may take."""
    complete = choices.complete
    if complete.get("device") == AUTO:
        if complete["model"] not in DEVICE_MODELS:
            chosen = ChosenDevice(CPU, f"model {complete['model']} is trained in memory")
        else:
            chosen = choose_device(AUTO, read_cuda())
        complete["device"] = chosen.name
        choices.made.append(Choice("device", chosen.name, chosen.reason))
        if chosen.name == CPU and complete.get("device_memory_bytes"):
            complete["device_memory_bytes"] = 0
            choices.made.append(Choice("device_memory", "0", "partitions are trained in memory"))
    device = complete.get("device", CPU)
    if device != CPU:
        name = choose_device(device, read_cuda()).name
        if not complete.get("device_memory_bytes"):
            num_bytes = memory_for_rows(torch.device(name))
            complete["device_memory_bytes"] = num_bytes
            choices.made.append(Choice("device_memory", format_bytes(num_bytes), f"half of what is free on {name}"))


def _choose_evaluation(dataset: Dataset, num_edges: int, choices: Choices) -> None:
    """Choose the shares of edges to leave out of training, where the dataset has no parts."""
    if dataset.manifest.triples is not None and "train" in dataset.manifest.triples.parts:
        return
    share = min(_MOST_SHARE, choices.complete.get("eval_edges", DEFAULT_EVAL_EDGES) / max(1, num_edges))
    for name, part in (("valid_share", "valid"), ("test_share", "test")):
        if choices.complete.get("evaluate", True):
            choices.choose(name, share, f"left out of training, since the dataset has no {part} edges")
