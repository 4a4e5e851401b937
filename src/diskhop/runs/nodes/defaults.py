"""Defaults of node classification: presets, then choices that follow from the dataset, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from diskhop.budget import format_bytes
from diskhop.config.hop import HopConfig
from diskhop.config.learning import CROSS_ENTROPY, MSE
from diskhop.config.node_kinds import KINDS
from diskhop.config.options import AUTO, check_options, options_of, require_known
from diskhop.config.parse import resolved_path
from diskhop.config.sampled import ALL_NEIGHBORS, MADE_FEATURES, SampledConfig
from diskhop.config.sampler import CHOOSING, FASTGCN, HGT, LADIES, LAYER_WISE, MARIUS, NEIGHBOR
from diskhop.config.train import CLASSIFICATION, LINK, REGRESSION, TrainConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.hops.spec import DEFAULT_HOPS
from diskhop.nn.matmul.choice import bfloat16_ratio, choose_matmul
from diskhop.nn.matmul.products import PRECISIONS
from diskhop.nn.models import HOP_MODELS, LAYERS, config_kind
from diskhop.nn.typed.models import TYPED_MODELS
from diskhop.run_files import HOP, NODE
from diskhop.runs.choices import Choice, Choices, Resolved, presumed_memory, read_preset, with_preset
from diskhop.runs.data_use import edge_weights_of, ignored_parts
from diskhop.runs.devices import choose_run_device
from diskhop.runs.fitting import check_training_options, require_fitting
from diskhop.runs.nodes.advice import advise, read_label_facts
from diskhop.runs.nodes.chunk_length import longest_mixed_chunk
from diskhop.runs.nodes.graph_facts import read_facts
from diskhop.runs.nodes.metrics import METRIC_OF_TASK
from diskhop.runs.nodes.objective import TASK_OF_LABELS
from diskhop.runs.nodes.recipes import MOST_EDGES_FOR_ALL_NEIGHBORS, choose_defaults
from diskhop.runs.nodes.subgraph_defaults import choose_partitions, choose_subgraphs
from diskhop.runs.nodes.task import NodeTask, read_task
from diskhop.runs.nodes.warm_start import architecture_of
from diskhop.system.memory import default_threads

PRESETS = Path(__file__).parents[1] / "presets"

_USUAL_BATCH = 1000
# Below, evaluation takes long, however little memory it takes.
_FEWEST_EVALUATED = 64
# Adam needs some hundreds of steps; with many batches per epoch, a few epochs are enough.
_WANTED_STEPS = 500
_FEWEST_EPOCHS, _MOST_EPOCHS = 5, 200
# Of more epochs than that, which subgraphs of a small graph have.
_EPOCHS_PER_VALIDATION = 5
# Nodes per hop at most, and as a share of the graph, so that small graphs are sampled, too. FastGCN draws from the
# whole graph, where most nodes are no neighbours of the batch: with fewer, many lists of a sparse graph get none.
_NODES_PER_HOP = {LADIES: (16384, 1 / 4), FASTGCN: (131072, 3 / 4)}
# With hgt, as in its paper: a batch has some thousands of nodes.
_NODES_PER_TYPE = 512


def load_preset(name: str, model: str | None = None) -> dict[str, Any]:
    """Return a preset's options for a model, by default the preset's own model.

    Options for all models are left out where the model's kind of run has no such option. A table named like the model
    refines them. Raises ConfigError for an unknown preset or model.
    """
    chosen, content, refinement = read_preset(PRESETS, name, model, (*LAYERS, *HOP_MODELS, *TYPED_MODELS))
    known = options_of(config_kind(chosen))
    shared = {option: value for option, value in content.items() if option in known}
    return check_options({**shared, **refinement, "model": chosen}, f"preset '{name}'", KINDS)


def resolve_config(
    dataset: Dataset, options: Mapping[str, Any], preset: str | None = None
) -> Resolved[TrainConfig, NodeTask]:
    """Complete options for a dataset, with the reason for every value that was chosen.

    Options win over the preset, and the preset over the choices made here. A fan-out with one count applies to every
    hop. Raises ConfigError for options that cannot work, an unknown model or preset included.
    """
    given = check_training_options(options, SampledConfig)
    if given.get("task") == LINK:
        raise ConfigError(
            "--task link is for 'diskhop train' (with --store packed --disk 100GB it packs ahead): remove it"
        )
    if preset is not None:
        given = with_preset(load_preset(preset, given.get("model")), given)
    choices = Choices(given)
    if given.get("warm_start"):
        _choose_architecture(choices)
    model = choices.choose("model", "sage", "learns from sampled neighbours, on any graph")
    kind = config_kind(model)
    require_fitting(dataset, given, kind, f"model '{model}'")
    memory_bytes = presumed_memory(given)
    task = choose_task(dataset, memory_bytes, choices)
    # A preset is a whole recipe, and so is the architecture of another run. A run that is repeated has all options.
    if preset is None and not given.get("warm_start") and not _is_complete(given, kind):
        for default in choose_defaults(read_facts(dataset, len(task.seeds.train)), model):
            if _goes_with(default.option, given):
                choices.choose(*default)
    if kind is HopConfig:
        choose_hops(dataset, model, choices)
    else:
        choose_sampling(dataset, choices)
    choices.choose("hidden", 128, "wide enough for most graphs, fast on a CPU")
    choices.choose("norm", "layer", "trains steadily at any batch size")
    choices.choose("dropout", 0.5, "default regularisation")
    choices.choose("lr", 0.003, "suits Adam with batches of some hundreds")
    choose_edge_weights(dataset, model, choices)
    choices.made += ignored_parts(dataset, HOP if kind is HopConfig else NODE)
    num_batches = choose_subgraphs(dataset, choices) if given.get("sampler", NEIGHBOR) in CHOOSING else None
    if given.get("sampler") == MARIUS:
        choose_partitions(dataset, choices)
    choose_steps(
        choices,
        len(task.seeds.train),
        "training nodes",
        has_valid=task.seeds.valid is not None,
        num_batches=num_batches,
    )
    choose_objective(dataset, choices)
    choices.choose("memory_bytes", memory_bytes, "half of the free memory", format_bytes(memory_bytes))
    if kind is HopConfig:
        choose_chunks(task, choices)
    choose_machine(choices)
    config = kind(**choices.complete)
    is_new = config.task == CLASSIFICATION and not _is_complete(given, kind)
    facts = read_label_facts(dataset, task) if is_new else None
    advice = [] if facts is None else advise(facts, config)
    return Resolved(config, [*choices.made, *advice], task)


def _goes_with(option: str, given: Mapping[str, Any]) -> bool:
    """Return whether an option may be chosen next to those that were given."""
    if option == "layers":
        return not any(len(given.get(name, ())) > 1 for name in ("fanout", "eval_fanout"))
    if option == "fanout":
        return bool(given.get("sampler", NEIGHBOR) == NEIGHBOR)
    other = {"self_term": "residual", "residual": "self_term"}.get(option)
    return other is None or not given.get(other, False)


def _is_complete(given: Mapping[str, Any], kind: type[TrainConfig]) -> bool:
    return all(name in given for name in options_of(kind))


def _choose_architecture(choices: Choices) -> None:
    """Take the other run's architecture. A complete configuration, such as a resumed run's, needs no other run."""
    choices.complete["warm_start"] = run = resolved_path(choices.given["warm_start"])
    kind = config_kind(choices.given["model"]) if "model" in choices.given else None
    if kind is None or not _is_complete(choices.given, kind):
        for name, value in architecture_of(run, choices.given).items():
            choices.choose(name, value, f"as in the run of --warm-start, {Path(run).name}")


def choose_task(dataset: Dataset, memory_bytes: int, choices: Choices) -> NodeTask:
    """Read labels and seed nodes."""
    given = choices.given
    if dataset.num_splits > 1:
        choices.choose("split", 0, f"the first of {dataset.num_splits}")
    task = read_task(
        dataset, split=given.get("split", 0), evaluate=given.get("evaluate", True), memory_bytes=memory_bytes
    )
    choices.made += task.choices
    return task


def choose_edge_weights(dataset: Dataset, model: str, choices: Choices) -> None:
    """Use the weights of edges where there are some, unless the model cannot."""
    direction = choices.complete.get("direction", "in")
    given, is_drawn = choices.given.get("edge_weights"), choices.given.get("weighted", False)
    chosen = edge_weights_of(dataset, model, direction, given, is_drawn=is_drawn)
    if chosen is not None:
        choices.choose(chosen.option, chosen.value, chosen.why)


def choose_objective(dataset: Dataset, choices: Choices) -> None:
    """Choose the task that the labels are for, with its loss and its metric."""
    labels = f"labels are {dataset.num_outputs} {dataset.label_kind}"
    task = choices.choose("task", TASK_OF_LABELS[dataset.label_kind], labels)
    choices.choose("loss", MSE if task == REGRESSION else CROSS_ENTROPY, f"usual for {task}")
    choices.choose("metric", METRIC_OF_TASK[task], labels)


def choose_steps(
    choices: Choices,
    num_items: int,
    items: str,
    *,
    has_valid: bool,
    num_batches: int | None = None,
    fewest_batches: int = 1,
    why: str = "",
) -> None:
    """Choose batch size, epochs and patience for some training nodes or edges.

    items: what they are, in words.
    num_batches: of a sampler that chooses the nodes of its batches; None for others.
    fewest_batches: batches of an epoch that a small graph is divided into.
    why: reason for fewest_batches, in words.
    """
    given = choices.given
    most_epochs = _MOST_EPOCHS if num_batches is None else _WANTED_STEPS
    if num_batches is None:
        fitting = -(-num_items // fewest_batches)
        reason = f"of {num_items} {items}" + (f"; {why}" if why and fitting < _USUAL_BATCH else "")
        batch_size = choices.choose("batch_size", min(_USUAL_BATCH, fitting), reason)
        num_batches = -(-num_items // batch_size)
    num_batches = min(num_batches, given.get("max_batches", 0) or num_batches)
    epochs = min(max(-(-_WANTED_STEPS // num_batches), _FEWEST_EPOCHS), most_epochs)
    shown = "1 batch" if num_batches == 1 else f"{num_batches} batches"
    epochs = choices.choose("epochs", epochs, f"{shown} each, at most {epochs * num_batches} steps")
    if has_valid and "epochs" not in given:
        apart = given.get("eval_every", 1)
        if epochs > _MOST_EPOCHS:
            apart = choices.choose("eval_every", _EPOCHS_PER_VALIDATION, "epochs are short")
        patience = -(-max(_FEWEST_EPOCHS, epochs // 4) // apart)
        choices.choose("patience", patience, f"stops after {patience} validations in a row that are not better")


def choose_machine(choices: Choices) -> None:
    """Choose the device, the I/O engine, threads, and the library that multiplies matrices."""
    choose_run_device(choices)
    choices.choose("engine", AUTO, "the fastest that works here")
    choices.choose("threads", default_threads(), "the cores this process may use")
    choose_products(choices)


def choose_products(choices: Choices) -> None:
    """Choose the library that multiplies matrices."""
    precision = choices.given.get("precision", "float32")
    require_known("precision", precision, PRECISIONS)
    if "matmul" not in choices.given:
        matmul = choose_matmul(precision)
        rates = ", ".join(f"{name} {rate:.0f}" for name, rate in matmul.gflops.items())
        why = f"preferred unless another is over 15 % faster; GFLOP/s in {precision}: {rates}"
        choices.choose("matmul", matmul.backend, why)
    if precision == "bfloat16" and (ratio := bfloat16_ratio()) > 1:
        why = f"its products take {ratio:.1f} times as long as float32's on this machine; --precision float32 is faster"
        choices.made.append(Choice("precision", precision, why))


def choose_sampling(dataset: Dataset, choices: Choices) -> None:
    """Choose layers, fan-outs, batches of evaluation, and the source of features."""
    choose_batches(choices, dataset.num_nodes, dataset.num_edges)
    given = choices.given
    if dataset.feature_table() is None:
        choices.choose("features", MADE_FEATURES[0], "the graph has none: a constant and log(1 + in-degree) stand in")
    elif given.get("features"):
        raise ConfigError(
            f"--features {given['features']} is for graphs without features, and {dataset.path} has "
            f"{dataset.feature_dim} columns; remove --features"
        )


def choose_batches(choices: Choices, num_nodes: int, num_edges: int) -> None:
    """Choose layers, fan-outs, batches of evaluation, and the store. num_nodes, num_edges: of the graph."""
    choose, given = choices.choose, choices.given
    lists = [given[name] for name in ("fanout", "eval_fanout") if len(given.get(name, ())) > 1]
    if lists:
        layers = choose("layers", len(lists[0]), "one per hop of the fan-out")
    else:
        layers = choose("layers", 2, "two hops reach most of what helps")
    sampler = given.get("sampler", NEIGHBOR)
    if sampler in LAYER_WISE:
        most, share = _NODES_PER_HOP[sampler]
        num_drawn = max(1, min(most, int(share * num_nodes)))
        choose("fanout", (num_drawn,) * layers, f"nodes per hop, for all lists together, of {num_nodes}")
    elif sampler == HGT:
        choose("fanout", (_NODES_PER_TYPE,) * layers, "nodes of each type per hop")
    elif sampler in CHOOSING:
        choose("fanout", (ALL_NEIGHBORS,) * layers, "batches have all edges among their nodes")
    else:
        choose("fanout", (10,) * layers, "neighbours per hop; bounds a batch on any graph")
    is_small = num_edges <= MOST_EDGES_FOR_ALL_NEIGHBORS
    eval_reason = "all neighbours, since the graph is small" if is_small else "more than in training, still bounded"
    choose("eval_fanout", ((ALL_NEIGHBORS if is_small else 20),) * layers, eval_reason)
    for name in ("fanout", "eval_fanout"):
        if len(choices.complete[name]) == 1:
            choices.complete[name] *= layers
    is_bounded = sampler not in (*LAYER_WISE, *CHOOSING, HGT) and not is_small
    if is_bounded:
        choose("eval_batch_size", _fitting_batch(choices, num_edges / num_nodes), "no larger than a training batch")
    else:
        choose("eval_batch_size", _USUAL_BATCH, "bounds memory per batch")
    choose("store", AUTO, "the planner picks the fastest, see below")


def _fitting_batch(choices: Choices, mean_degree: float) -> int:
    """Return how many seeds of evaluation have as many edges as a training batch, which memory is planned for."""
    num_edges = []
    for name in ("fanout", "eval_fanout"):
        per_hop = [mean_degree if count == ALL_NEIGHBORS else count for count in choices.complete[name]]
        num_edges.append(sum(np.cumprod(per_hop)))
    batch_size: int = choices.given.get("batch_size", _USUAL_BATCH)
    fitting = int(batch_size * num_edges[0] / max(num_edges[1], 1))
    return max(min(batch_size, _FEWEST_EVALUATED), min(max(batch_size, _USUAL_BATCH), fitting))


def choose_hops(dataset: Dataset, model: str, choices: Choices) -> None:
    """Choose the hop tables, and how their rows are read and mapped."""
    choose = choices.choose
    if model == "sgc":
        # One linear layer has none of these.
        choices.complete = {"layers": 1, "hidden": 1, "norm": "none", **choices.complete}
        choose("dropout", 0.0, "one linear layer hardly overfits")
        choose("lr", 0.02, "one linear layer takes large steps")
    choose("hops", DEFAULT_HOPS, "most of what helps is this near (PP-GNN, figure 2)")
    choose("operators", ("sgc" if model == "sgc" else "sign",), f"as in the paper on {model}")
    if model == "sgc" and len(choices.complete["operators"]) > 1:
        raise ConfigError(
            f"sgc takes one operator, got {', '.join(choices.complete['operators'])}: use --model sign for several"
        )
    choose("direction", "in", "the dataset's own neighbour lists; no others need to be made")
    short = dataset.feature_dtype == "float16"
    reason = "the features' dtype" if short else "exact; float16 halves disk space and reads"
    choose("dtype", "float16" if short else "float32", reason)
    choose("layers", 2, "one hidden layer over the hops")
    if model == "hoga":
        choose("heads", 1, "enough for so few hops")
    choose("shuffle", AUTO, "rows where tables are in memory, chunks where they are on disk")
    choose("placement", AUTO, "memory if the tables fit")


def choose_chunks(task: NodeTask, choices: Choices) -> None:
    """Choose the length of the chunks of rows that are shuffled."""
    batch_size = choices.complete["batch_size"]
    chunk_rows = batch_size
    if task.labels is not None:
        chunk_rows = longest_mixed_chunk(task.labels[np.sort(task.seeds.train)], batch_size)
    reason = "as long as a batch, which loses no accuracy (PP-GNN, section 6.3)"
    if chunk_rows < batch_size:
        reason = "neighbouring rows often share a class; longer chunks would give batches of few classes"
    choices.choose("chunk_rows", chunk_rows, reason)
