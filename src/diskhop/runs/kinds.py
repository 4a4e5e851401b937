"""The kinds of runs: what each is called, which models it trains, and how it is configured, planned and run.

A new kind is a folder and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar, cast

from diskhop.budget import Budget
from diskhop.config.embed import EmbedConfig
from diskhop.config.hop import HopConfig
from diskhop.config.link import LinkConfig
from diskhop.config.options import option_fields, require_known
from diskhop.config.sampled import SampledConfig
from diskhop.config.train import LINK
from diskhop.config.typed import TypedConfig
from diskhop.config.typed_hop import TypedHopConfig
from diskhop.config.typed_link import TypedLinkConfig
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.scoring.scores import SCORES
from diskhop.errors import ConfigError
from diskhop.io.engine import choose_engine
from diskhop.loaders.destination import memory_for_rows
from diskhop.nn.models import HOP_MODELS, LAYERS
from diskhop.nn.typed.models import TYPED_MODELS
from diskhop.planning.embeddings.rank import rank_partitions
from diskhop.planning.hops.rank import PlannedDevice, rank_placements, tables_by_operators
from diskhop.planning.measure import disk_model
from diskhop.planning.options import Ranking
from diskhop.planning.planner import rank_options
from diskhop.planning.workload import Workload
from diskhop.plans import EmbedPlan, HopPlan, SampledPlan
from diskhop.run_files import COMMANDS, EMBEDDING, HOP, LINK_RUN, NODE, TYPED, TYPED_HOP, TYPED_LINK
from diskhop.runs.choices import Resolved
from diskhop.runs.context import RunContext
from diskhop.runs.devices import device_of
from diskhop.runs.embedding.defaults import resolve_embed_config
from diskhop.runs.embedding.run import Embedded, train_embeddings
from diskhop.runs.links.defaults import resolve_link_config
from diskhop.runs.links.prepare import planned_workload
from diskhop.runs.links.run import ONE_TYPE, train_links
from diskhop.runs.links.task import LinkTask
from diskhop.runs.nodes.clusters import with_clusters
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.nodes.hops import prepare_hops
from diskhop.runs.nodes.packing import find_packed
from diskhop.runs.nodes.run import train_nodes
from diskhop.runs.nodes.sampled import prepare_sampled, sampled_workload
from diskhop.runs.nodes.task import NodeTask
from diskhop.runs.nodes.workload import HELD_ONCE
from diskhop.runs.shares import share_of
from diskhop.runs.training import Trained
from diskhop.runs.trial_steps import (
    Trial,
    try_embeddings,
    try_hops,
    try_links,
    try_nodes,
    try_typed,
    try_typed_hops,
    try_typed_links,
)
from diskhop.runs.typed.defaults import resolve_typed_config
from diskhop.runs.typed.prepare import merged_workload, prepare_typed
from diskhop.runs.typed_hops.defaults import resolve_typed_hop_config
from diskhop.runs.typed_hops.prepare import prepare_typed_hops, tables_along_paths
from diskhop.runs.typed_links import prepare as typed_links
from diskhop.runs.typed_links.defaults import resolve_typed_link_config
from diskhop.runs.typed_links.run import SEVERAL_TYPES
from diskhop.runtime.progress import Progress
from diskhop.runtime.ranks import Ranks

ConfigT = TypeVar("ConfigT")
TaskT = TypeVar("TaskT")
FinishedT = TypeVar("FinishedT")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKind(Generic[ConfigT, TaskT, FinishedT]):
    """A kind of run.

    name: as in config.toml and result.json.
    config: the class of its configuration.
    models: the names of its models; no two kinds share one. None for a kind that is chosen by --task.
    resolve: completes options for a dataset, with a preset's if one is named.
    rank: compares the ways to run a configuration in a number of processes on one machine, without training.
    try_steps: trains and evaluates on a batch, within a number of bytes for the process.
    run: trains.
    sizes_of_step: options, besides the batch sizes, that make a step smaller.
    """

    name: str
    config: type[ConfigT]
    models: Collection[str]
    resolve: Callable[[Dataset, Mapping[str, Any], str | None], Resolved[Any, Any]]
    rank: Callable[[Dataset, ConfigT, TaskT, int], Ranking[Any]]
    run: Callable[[RunContext, ConfigT, TaskT | None], FinishedT]
    try_steps: Callable[[Dataset, ConfigT, TaskT, int, Progress], Trial]
    sizes_of_step: tuple[str, ...] = ("--fanout", "--hidden")

    @property
    def command(self) -> str:
        """The command that starts a run of this kind."""
        return COMMANDS[self.name]


# The kind of run that trains a model on a graph with several types, by that of a graph with one.
_OF_TYPES = {NODE: TYPED, HOP: TYPED_HOP}


def find_kind(model: str | None, task: str | None = None, dataset: Dataset | None = None) -> RunKind[Any, Any, Any]:
    """Return the kind of run that trains a model for a task; None: the default model, and any task on nodes.

    dataset: with several types, every model on nodes is one of types.
    """
    if task == LINK:
        is_typed = model in TYPED_MODELS or (dataset is not None and dataset.has_several_types)
        return KINDS[TYPED_LINK if is_typed else LINK_RUN]
    if model is not None:
        require_known("model", model, [name for kind in KINDS.values() for name in kind.models])
    kind = KINDS[NODE] if model is None else next(kind for kind in KINDS.values() if model in kind.models)
    if dataset is not None and dataset.has_several_types:
        return KINDS[_OF_TYPES.get(kind.name, kind.name)]
    return kind


def kind_of(config: Any) -> RunKind[Any, Any, Any]:
    """Return the kind of run that a configuration is of."""
    return next(kind for kind in KINDS.values() if type(config) is kind.config)


def require_link_task(options: Mapping[str, Any]) -> None:
    """Refuse options that only links have, in a run on nodes."""
    if options.get("task") == LINK:
        return
    known = {name for kind in (SampledConfig, HopConfig) for name in option_fields(kind)}
    for name in options:
        if name in option_fields(LinkConfig) and name not in known:
            flag = option_fields(LinkConfig)[name].main_flag
            raise ConfigError(f"{flag} is for links: add --task link, or remove it")


def configs_of(command: str) -> dict[str, type[Any]]:
    """Return the configuration classes of a command's kinds of runs, by kind."""
    return {name: kind.config for name, kind in KINDS.items() if kind.command == command}


def _rank_stores(
    dataset: Dataset,
    config: SampledConfig,
    processes: int,
    describe: Callable[[SampledConfig], tuple[Dataset, Workload]],
) -> Ranking[SampledPlan]:
    """Rank the stores of a run. describe: returns the graph that a process reads, and its part for the planner."""
    if all(nodes.feature_table() is None for nodes in dataset.nodes.values()):
        raise ConfigError(f"{dataset.path}: has no features, so every store is alike and there is nothing to plan")
    graph, workload = describe(replace(config, threads=max(1, config.threads // processes)))
    budget = Budget(config.memory_bytes, processes)
    return rank_options(graph, workload, budget, disk_model(graph, choose_engine(config.engine)[0]))


def _rank_nodes(dataset: Dataset, config: SampledConfig, task: NodeTask, processes: int) -> Ranking[SampledPlan]:
    def describe(own: SampledConfig) -> tuple[Dataset, Workload]:
        graph, _ = with_clusters(dataset, own, Budget(own.memory_bytes))
        budget = Budget(own.memory_bytes, processes)
        return graph, find_packed(graph, own, sampled_workload(graph, own, task), task.seeds.train, budget)

    return _rank_stores(dataset, config, processes, describe)


def _rank_typed(dataset: Dataset, config: TypedConfig, task: NodeTask, processes: int) -> Ranking[SampledPlan]:
    return _rank_stores(dataset, config, processes, lambda own: merged_workload(dataset, cast(TypedConfig, own), task))


def _rank_links(dataset: Dataset, config: LinkConfig, task: LinkTask, processes: int) -> Ranking[SampledPlan]:
    def describe(own: SampledConfig) -> tuple[Dataset, Workload]:
        return dataset, planned_workload(dataset, cast(LinkConfig, own), task)

    return _rank_stores(dataset, config, processes, describe)


def _rank_typed_links(
    dataset: Dataset, config: TypedLinkConfig, task: LinkTask, processes: int
) -> Ranking[SampledPlan]:
    def describe(own: SampledConfig) -> tuple[Dataset, Workload]:
        return typed_links.planned_workload(dataset, cast(TypedLinkConfig, own), task)

    return _rank_stores(dataset, config, processes, describe)


def _rank_hops(dataset: Dataset, config: HopConfig, task: NodeTask, processes: int) -> Ranking[HopPlan]:
    own, budget = share_of(config, on_one_machine(processes)), Budget(config.memory_bytes, processes)
    model = disk_model(dataset, choose_engine(config.engine)[0])
    tables = tables_by_operators(dataset, own, budget, model)
    return rank_placements(dataset, own, task.seeds, task.held, HELD_ONCE, budget, model, tables, _planned_device(own))


def _rank_typed_hops(dataset: Dataset, config: TypedHopConfig, task: NodeTask, processes: int) -> Ranking[HopPlan]:
    own, budget = share_of(config, on_one_machine(processes)), Budget(config.memory_bytes, processes)
    labelled = dataset.of_node_type(config.target)
    model = disk_model(labelled, choose_engine(config.engine)[0])
    tables = tables_along_paths(dataset, own, budget, model)
    return rank_placements(labelled, own, task.seeds, task.held, HELD_ONCE, budget, model, tables, _planned_device(own))


def _rank_embeddings(dataset: Dataset, config: EmbedConfig, _task: None, processes: int) -> Ranking[EmbedPlan]:
    model = disk_model(dataset, choose_engine(config.engine)[0])
    return rank_partitions(dataset, config, model, on_one_machine(processes), device_of(config))


def _planned_device(config: HopConfig) -> PlannedDevice | None:
    """Return the device that a run on hop tables computes on; None for the CPU. Raises ConfigError; see device_of()."""
    device = device_of(config)
    return None if device is None else PlannedDevice(device, config.device_memory_bytes or memory_for_rows(device))


def on_one_machine(processes: int) -> Ranks:
    """Return the first of some processes on one machine."""
    return Ranks(rank=0, count=processes, local_rank=0, local_count=processes)


_NODE: RunKind[SampledConfig, NodeTask, Trained] = RunKind(
    name=NODE,
    config=SampledConfig,
    models=tuple(LAYERS),
    resolve=resolve_config,
    rank=_rank_nodes,
    run=partial(train_nodes, NODE, prepare_sampled),
    try_steps=try_nodes,
)
_HOP: RunKind[HopConfig, NodeTask, Trained] = RunKind(
    name=HOP,
    config=HopConfig,
    models=tuple(HOP_MODELS),
    resolve=resolve_config,
    rank=_rank_hops,
    run=partial(train_nodes, HOP, prepare_hops),
    try_steps=try_hops,
)
_TYPED: RunKind[TypedConfig, NodeTask, Trained] = RunKind(
    name=TYPED,
    config=TypedConfig,
    models=tuple(TYPED_MODELS),
    resolve=resolve_typed_config,
    rank=_rank_typed,
    run=partial(train_nodes, TYPED, prepare_typed),
    try_steps=try_typed,
)
_TYPED_HOP: RunKind[TypedHopConfig, NodeTask, Trained] = RunKind(
    name=TYPED_HOP,
    config=TypedHopConfig,
    models=(),
    resolve=resolve_typed_hop_config,
    rank=_rank_typed_hops,
    run=partial(train_nodes, TYPED_HOP, prepare_typed_hops),
    try_steps=try_typed_hops,
)
_LINK: RunKind[LinkConfig, LinkTask, Trained] = RunKind(
    name=LINK_RUN,
    config=LinkConfig,
    models=(),
    resolve=resolve_link_config,
    rank=_rank_links,
    run=partial(train_links, ONE_TYPE),
    try_steps=try_links,
)
_TYPED_LINK: RunKind[TypedLinkConfig, LinkTask, Trained] = RunKind(
    name=TYPED_LINK,
    config=TypedLinkConfig,
    models=(),
    resolve=resolve_typed_link_config,
    rank=_rank_typed_links,
    run=partial(train_links, SEVERAL_TYPES),
    try_steps=try_typed_links,
)
_EMBEDDING: RunKind[EmbedConfig, None, Embedded] = RunKind(
    name=EMBEDDING,
    config=EmbedConfig,
    models=tuple(SCORES),
    resolve=resolve_embed_config,
    rank=_rank_embeddings,
    run=train_embeddings,
    try_steps=try_embeddings,
    sizes_of_step=("--negatives", "--dim"),
)
KINDS: dict[str, RunKind[Any, Any, Any]] = {
    kind.name: kind for kind in (_NODE, _HOP, _TYPED, _TYPED_HOP, _LINK, _TYPED_LINK, _EMBEDDING)
}
