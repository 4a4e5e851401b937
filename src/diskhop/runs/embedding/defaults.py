"""Filling in what nobody said of a run of embeddings: presets, then choices, one line of reason each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from diskhop.budget import format_bytes
from diskhop.config.embed import DEFAULT_EVAL_EDGES, EmbedConfig
from diskhop.config.options import AUTO, check_options, require_known
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.graph_edges import embedded_nodes
from diskhop.embedding.scoring.losses import LOSSES
from diskhop.embedding.scoring.scores import SCORES
from diskhop.errors import ConfigError
from diskhop.planning.embeddings.partitions import choose_partitions
from diskhop.planning.embeddings.size import _count_edges, embed_size
from diskhop.runs.choices import Choices, read_preset
from diskhop.system.memory import default_memory_bytes, default_threads

_PRESETS = Path(__file__).parents[1] / "presets" / "embed"
_MOST_SHARE = 0.05
_WANTED_STEPS, _MOST_EPOCHS = 2000, 100


class ResolvedEmbedding(NamedTuple):
    """A whole configuration, and why each value that nobody gave was chosen."""

    config: EmbedConfig
    reasons: list[str]


def load_embed_preset(name: str, model: str | None) -> dict[str, Any]:
    """Options of a preset for a model, by default the preset's own; a table by a model's name refines them."""
    chosen, content, refinement = read_preset(_PRESETS, name, model, SCORES)
    return check_options({**content, **refinement, "model": chosen}, f"preset '{name}'", (EmbedConfig,))


def resolve_embed_config(dataset: Dataset, options: Mapping[str, Any], preset: str | None) -> ResolvedEmbedding:
    """Turn options into a whole configuration and say why each value that nobody gave was chosen.

    Options win over the preset, the preset over the choices made here. Raises ConfigError for what cannot work.
    """
    given = check_options(options, "embedding", (EmbedConfig,))
    if preset is not None:
        given = {**load_embed_preset(preset, given.get("model")), **given}
    choices = Choices(given)
    choose, complete, reasons = choices.choose, choices.complete, choices.reasons

    num_relations, num_edges = dataset.num_relations, _count_edges(dataset)
    num_nodes = embedded_nodes(dataset).num_nodes
    if num_relations:
        model = choose("model", "complex", "scores relations either way round")
    else:
        model = choose("model", "dot", "the edges have no relations")
    require_known("model", model, SCORES)
    if SCORES[model].uses_relations and not num_relations:
        raise ConfigError(f"model '{model}' is for edges with relations, {dataset.path} has none; take --model dot")
    require_known("loss", choose("loss", "softmax", "learns from the hardest negatives most"), LOSSES)
    choose("dim", 100, "of usual width")
    SCORES[model].relation_dim(complete["dim"])
    batch_size = choose("batch_size", max(1, min(50_000, num_edges // 20)), f"of {num_edges:,} edges")
    choose("chunk_size", min(batch_size, 1000), "edges that share negatives")
    choose("negatives", min(1000, max(1, num_nodes)), "at each side, shared by a chunk")
    choose("lr", 0.1, "suits Adagrad")
    choose("init_scale", 0.1 if num_relations else 0.01, "small against what is learnt")
    num_batches = max(1, num_edges // batch_size)
    epochs = min(_MOST_EPOCHS, -(-_WANTED_STEPS // num_batches))
    choose("epochs", epochs, f"{num_batches} batches each, {epochs * num_batches} steps")
    if dataset.manifest.triples is None or "train" not in dataset.manifest.triples.parts:
        share = min(_MOST_SHARE, complete.get("eval_edges", DEFAULT_EVAL_EDGES) / max(1, num_edges))
        for name, part in (("valid_share", "valid"), ("test_share", "test")):
            if complete.get("evaluate", True):
                choose(name, share, f"the dataset has no {part} edges: these are not trained on")
    choose("partition_order", AUTO, "the one with the fewest swaps")
    memory_bytes = default_memory_bytes()
    choose("memory_bytes", memory_bytes, f"{format_bytes(memory_bytes)}, half of what is free")
    choose("engine", AUTO, "the best that works here")
    choose("threads", default_threads(), "the cores that this process may use")
    choose("buffer", min(3, max(2, given.get("partitions", 3))), "the fewest that have swaps beside training")
    if "partitions" not in given:
        tried = EmbedConfig(**{**complete, "partitions": 1})
        chosen = choose_partitions(tried, embed_size(dataset, tried))
        complete |= {"partitions": chosen.partitions, "buffer": chosen.buffer}
        reasons.append(f"partitions {chosen.partitions}: the fewest that fit {format_bytes(complete['memory_bytes'])}")
    return ResolvedEmbedding(EmbedConfig(**complete), reasons)
