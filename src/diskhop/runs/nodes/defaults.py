"""Filling in what nobody said: presets, then choices that follow from the dataset, one line of reason each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from diskhop.budget import format_bytes
from diskhop.config.options import AUTO, check_options, options_of, require_known
from diskhop.config.train import ALL_NEIGHBORS, KINDS, HopConfig, SampledConfig, TrainConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.hops.spec import DEFAULT_HOPS
from diskhop.nn.matmul.choice import bfloat16_ratio, choose_matmul
from diskhop.nn.matmul.products import PRECISIONS
from diskhop.nn.models import HOP_MODELS, LAYERS, config_kind
from diskhop.runs.choices import Choices, read_preset
from diskhop.runs.nodes.chunk_length import longest_mixed_chunk
from diskhop.runs.nodes.task import NodeTask, read_task
from diskhop.system.memory import default_memory_bytes, default_threads

PRESETS = Path(__file__).parents[1] / "presets"

# Adam takes some hundreds of steps to get anywhere; with many batches an epoch, a few epochs do.
_WANTED_STEPS = 500
_FEWEST_EPOCHS, _MOST_EPOCHS = 5, 200
_MOST_EDGES_FOR_ALL_NEIGHBORS = 2_000_000


class Resolved(NamedTuple):
    """A whole configuration, why each value that nobody gave was chosen, and the labels and seeds that it is for."""

    config: TrainConfig
    reasons: list[str]
    task: NodeTask


def load_preset(name: str, model: str | None = None) -> dict[str, Any]:
    """Options of a preset for a model, by default the preset's own; of the rest, those that the model's kind has.

    A table by a model's name refines them. Raises ConfigError for an unknown preset or model.
    """
    chosen, content, refinement = read_preset(PRESETS, name, model, (*LAYERS, *HOP_MODELS))
    known = options_of(config_kind(chosen))
    shared = {option: value for option, value in content.items() if option in known}
    return check_options({**shared, **refinement, "model": chosen}, f"preset '{name}'", KINDS)


def resolve_config(dataset: Dataset, options: Mapping[str, Any], preset: str | None = None) -> Resolved:
    """Turn options into a whole configuration and say why each value that nobody gave was chosen.

    Options win over the preset, the preset over the choices made here. A fan-out of one count is for every hop.
    Raises ConfigError for what cannot work, an unknown model or preset included.
    """
    given = check_options(options, "training", KINDS)
    if preset is not None:
        given = {**load_preset(preset, given.get("model")), **given}
    choices = Choices(given)
    choose, reasons = choices.choose, choices.reasons

    model = choose("model", "sage", "learns from sampled neighbours, on any graph")
    kind = config_kind(model)
    _refuse_other_kinds(given, kind, model)
    if kind is HopConfig:
        _choose_hops(dataset, model, choices)
    else:
        _choose_sampling(dataset, choices)
    choose("hidden", 128, "wide enough for most graphs, quick on a CPU")
    choose("norm", "layer", "trains steadily at any batch size")
    choose("dropout", 0.5, "the usual guard against learning by heart")
    choose("lr", 0.003, "suits Adam with batches of some hundreds")

    if dataset.num_splits > 1:
        choose("split", 0, f"the first of {dataset.num_splits}")
    memory_bytes = given.get("memory_bytes") or default_memory_bytes()
    task = read_task(
        dataset, split=given.get("split", 0), evaluate=given.get("evaluate", True), memory_bytes=memory_bytes
    )
    seeds = task.seeds
    reasons += task.reasons
    batch_size = choose("batch_size", min(1000, len(seeds.train)), f"of {len(seeds.train)} training nodes")
    num_batches = min(-(-len(seeds.train) // batch_size), given.get("max_batches", 0) or len(seeds.train))
    epochs = min(max(-(-_WANTED_STEPS // num_batches), _FEWEST_EPOCHS), _MOST_EPOCHS)
    epochs = choose("epochs", epochs, f"{num_batches} batches each, {epochs * num_batches} steps at most")
    if seeds.valid is not None and "epochs" not in given:
        patience = -(-max(_FEWEST_EPOCHS, epochs // 4) // given.get("eval_every", 1))
        choose("patience", patience, f"stops after {patience} validations in a row that are not better")
    metric = "auc" if dataset.num_tasks else "accuracy"
    choose(
        "metric",
        metric,
        f"labels are {dataset.num_tasks or dataset.num_classes} {'tasks' if dataset.num_tasks else 'classes'}",
    )
    choose("memory_bytes", memory_bytes, f"{format_bytes(memory_bytes)}, half of what is free")
    if kind is HopConfig:
        _choose_chunks(task, batch_size, choices)
    choose("engine", AUTO, "the best that works here")
    choose("threads", default_threads(), "the cores that this process may use")
    precision = given.get("precision", "float32")
    require_known("precision", precision, PRECISIONS)
    if "matmul" not in given:
        matmul = choose_matmul(precision)
        rates = ", ".join(f"{name} {rate:.0f}" for name, rate in matmul.gflops.items())
        choose(
            "matmul",
            matmul.backend,
            f"the preferred, unless another is over 15 % faster; GFLOP/s in {precision}: {rates}",
        )
    if precision == "bfloat16" and (ratio := bfloat16_ratio()) > 1:
        reasons.append(
            f"precision bfloat16: as asked, but its products take {ratio:.1f} times as long here as float32's"
        )

    return Resolved(kind(**choices.complete), reasons, task)


def _refuse_other_kinds(given: Mapping[str, Any], kind: type[TrainConfig], model: str) -> None:
    models = ", ".join(HOP_MODELS if kind is SampledConfig else LAYERS)
    for name in given:
        if name not in options_of(kind):
            raise ConfigError(f"training: option '{name}' is for {models}, not for model '{model}': leave it out")


def _choose_sampling(dataset: Dataset, choices: Choices) -> None:
    choose, given = choices.choose, choices.given
    lists = [given[name] for name in ("fanout", "eval_fanout") if len(given.get(name, ())) > 1]
    if lists:
        layers = choose("layers", len(lists[0]), "one for each hop of the fan-out")
    else:
        layers = choose("layers", 2, "two hops reach most of what helps")
    choose("fanout", (10,) * layers, "neighbours a hop, bounds a batch whatever the degrees")
    is_small = dataset.num_edges <= _MOST_EDGES_FOR_ALL_NEIGHBORS
    eval_reason = "all neighbours, the graph is small" if is_small else "more than in training, still bounded"
    choose("eval_fanout", ((ALL_NEIGHBORS if is_small else 20),) * layers, eval_reason)
    for name in ("fanout", "eval_fanout"):
        if len(choices.complete[name]) == 1:
            choices.complete[name] *= layers
    choose("eval_batch_size", 1000, "as many as keep a batch small")
    choose("store", AUTO, "the one with the fewest predicted seconds; the planner says which, and why")


def _choose_hops(dataset: Dataset, model: str, choices: Choices) -> None:
    choose = choices.choose
    if model == "sgc":
        # What one linear layer has none of.
        choices.complete = {"layers": 1, "hidden": 1, "norm": "none", **choices.complete}
        choose("dropout", 0.0, "one linear layer hardly learns by heart")
        choose("lr", 0.02, "one linear layer takes large steps")
    choose("hops", DEFAULT_HOPS, "what helps is mostly this near (PP-GNN, figure 2)")
    choose("operators", ("sgc" if model == "sgc" else "sign",), f"as in the paper on {model}")
    if model == "sgc" and len(choices.complete["operators"]) > 1:
        raise ConfigError(
            f"sgc takes one operator, got {', '.join(choices.complete['operators'])}: take sign for several"
        )
    choose("direction", "in", "the dataset's own lists of neighbours: no others need to be made")
    short = dataset.feature_dtype == "float16"
    reason = "as the features are" if short else "exact; float16 takes half of the disk and of the reads"
    choose("dtype", "float16" if short else "float32", reason)
    choose("layers", 2, "one hidden layer over the hops")
    if model == "hoga":
        choose("heads", 1, "enough for so few hops to attend to")
    choose("shuffle", AUTO, "rows where the tables are in memory, chunks where they are on the disk")
    choose("placement", AUTO, "memory, if the tables fit")


def _choose_chunks(task: NodeTask, batch_size: int, choices: Choices) -> None:
    chunk_rows = batch_size
    if task.labels is not None:
        chunk_rows = longest_mixed_chunk(task.labels[np.sort(task.seeds.train)], batch_size)
    reason = "as many as a batch, which loses no accuracy (PP-GNN, section 6.3)"
    if chunk_rows < batch_size:
        reason = "labels of nodes that lie together are alike: with longer chunks batches are of few classes"
    choices.choose("chunk_rows", chunk_rows, reason)
