"""Packing batches before training: with `diskhop pack`, or in a run with room on disk for all epochs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from diskhop.batches.trace import TraceSettings
from diskhop.budget import Budget, format_bytes, parse_sizes
from diskhop.config.hop import HopConfig
from diskhop.config.options import AUTO
from diskhop.config.sampled import SampledConfig
from diskhop.config.sampler import MARIUS
from diskhop.dataset.dataset import Dataset
from diskhop.derived.clean import LAYOUT_FILE
from diskhop.derived.scratch import scratch_path
from diskhop.errors import BudgetError, ConfigError, FormatError, ReadError
from diskhop.io.engine import open_engine
from diskhop.nn.models import HOP_MODELS, LAYERS
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.pack_ahead import Packed, pack_epochs
from diskhop.pipeline.pack_steps import Samples
from diskhop.planning.batch_sizes import measure_batches
from diskhop.planning.planner import choose_plan, predict_plan
from diskhop.planning.simulation import prepares_ahead
from diskhop.planning.store_plan import plan_store
from diskhop.planning.workload import Workload, for_store
from diskhop.plans import SampledPlan
from diskhop.protocols import NodeRows
from diskhop.run_files import HOP, NODE
from diskhop.runs.callbacks import Callback, Callbacks
from diskhop.runs.fitted_memory import PlainNeeds, fit_needs
from diskhop.runs.nodes.clusters import with_clusters
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.nodes.samplers import train_pass
from diskhop.runs.nodes.workload import training_workload
from diskhop.runs.program_memory import MEMORY, measure_program, wish_of
from diskhop.runs.source import find_run_source
from diskhop.runtime.executors import open_executor
from diskhop.runtime.jobs import Executor, Share, SharedArray
from diskhop.runtime.tasks import WorkFolder
from diskhop.stores.packed.kind import KIND
from diskhop.stores.packed.layout import Layout, read_layout
from diskhop.stores.stores import STORES


@dataclass(frozen=True, slots=True, eq=False)
class Preparation:
    """A plan, and the work done for it.

    plan: what will run.
    steps: the work, now or before, as entries of result.json.
    num_epochs: the number of epochs that share the work.
    """

    plan: SampledPlan
    steps: list[dict[str, Any]] = field(default_factory=list)
    num_epochs: int = 0

    def after(self, steps: list[dict[str, Any]], num_epochs: int) -> Preparation:
        """Return the preparation with steps that came before it. num_epochs: those of the run."""
        return replace(self, steps=[*steps, *self.steps], num_epochs=self.num_epochs or num_epochs)

    def to_dict(self) -> dict[str, Any]:
        """Return entries of result.json; seconds are divided among the epochs that share the work."""
        if not self.steps:
            return {}
        seconds = sum(step["seconds"] for step in self.steps)
        return {"preparation": self.steps, "preparation_seconds_per_epoch": seconds / self.num_epochs}


def run_samples(config: SampledConfig, train_rows: NodeRows, num_nodes: int) -> Samples:
    """Return the batches that a run trains on. num_nodes: of the graph."""
    epochs = (0,) if config.reuse else tuple(range(config.epochs))
    num_batches = len(train_pass(config, train_rows, num_nodes, 0).numbers)
    return Samples(pass_of=_TrainPasses(config, train_rows, num_nodes), epochs=epochs, num_batches=num_batches)


@dataclass(frozen=True, slots=True, eq=False)
class _TrainPasses:
    """The pass of each epoch of training; see train_pass()."""

    config: SampledConfig
    train_rows: NodeRows
    num_nodes: int

    def __call__(self, epoch: int) -> Pass:
        return train_pass(self.config, self.train_rows, self.num_nodes, epoch)

    def for_workers(self, share: Share) -> partial[_TrainPasses]:
        """See jobs.py: processes map the rows."""
        return partial(_map_passes, self.config, SharedArray(self.train_rows), self.num_nodes)


def _map_passes(config: SampledConfig, train_rows: SharedArray, num_nodes: int) -> _TrainPasses:
    return _TrainPasses(config, NodeRows(train_rows.array), num_nodes)


def prepare(
    dataset: Dataset,
    config: SampledConfig,
    workload: Workload,
    samples: Samples,
    budget: Budget,
    callback: Callback,
) -> Preparation:
    """Plan a run. Uses batches packed before, or packs them now where that pays. samples: what it trains on.

    It pays where one epoch's samples are reused, and where --disk has room for all epochs. Raises as choose_plan() and
    pack_epochs().
    """
    layouts: list[Layout] = []
    reasons: list[str] = []
    is_packable = dataset.feature_table() is not None and _packs(config)
    if (config.store == AUTO or _prepares(config.store)) and is_packable:
        layouts, reasons = _find_layouts(dataset, config, workload.device_bytes, samples)
    plan, layout = _plan_with(dataset, workload, budget, layouts, reasons)
    if plan.predicted is None:
        plan = predict_plan(dataset, workload, plan, budget)
    if not _prepares(plan.store) or dataset.feature_table() is None:
        return Preparation(plan)
    chosen, workload = plan, replace(workload, store=plan.store)
    if layout is None and _packs(config) and prepares_ahead(workload, plan):
        # Other processes wait for one to pack, and leave it their memory.
        whole = budget if budget.num_processes == 1 else Budget(budget.total_bytes)
        packed = _pack(dataset, config, workload, plan, whole, samples, callback)
        plan, layout = _plan_with(dataset, workload, budget, [packed.layout], reasons)
        # Packing is done and would cost nothing now; the run was chosen by what it cost.
        plan = replace(plan, predicted=chosen.predicted, rejected=chosen.rejected)
    if layout is not None:
        return Preparation(plan, layout.steps(), config.epochs if config.reuse else len(layout.epochs))
    reasons.append("Packing: during training (one superbatch is packed while the previous one is trained on)")
    return Preparation(replace(plan, reasons=(*plan.reasons, *reasons)))


def _packs(config: SampledConfig) -> bool:
    """Whether the epochs of a run can be packed ahead: all must have the same number of batches."""
    return config.sampler != MARIUS


def _prepares(store: str) -> bool:
    """Whether a store can replay batches that were prepared ahead."""
    return store in STORES and STORES[store].find_prepared is not None


def find_packed(
    dataset: Dataset, config: SampledConfig, workload: Workload, train_rows: NodeRows, budget: Budget
) -> Workload:
    """Return the workload with the epochs that were packed before, if any that fit the budget."""
    layouts, reasons = _find_layouts(
        dataset, config, workload.device_bytes, run_samples(config, train_rows, dataset.num_nodes)
    )
    return _with_layout(dataset, workload, budget, layouts, reasons)


def _plan_with(
    dataset: Dataset, workload: Workload, budget: Budget, layouts: Sequence[Layout], reasons: list[str]
) -> tuple[SampledPlan, Layout | None]:
    """Return a plan and the layout it uses, the first that fits. reasons: gets a line for each that does not fit."""
    workload = _with_layout(dataset, workload, budget, layouts, reasons)
    plan = choose_plan(dataset, workload, budget)
    return plan, next((layout for layout in layouts if str(layout.path) == plan.share.layout), None)


def _with_layout(
    dataset: Dataset, workload: Workload, budget: Budget, layouts: Sequence[Layout], reasons: list[str]
) -> Workload:
    """Return the workload with the first layout that fits the budget; reasons: see _plan_with()."""
    if layouts and workload.sizes is None:
        workload = replace(
            workload, sizes=measure_batches(dataset, workload.seed_sets, workload.seed, budget.total_bytes)
        )
    for layout in layouts:
        prepared = replace(workload, prepared=layout)
        try:
            plan_store(dataset, for_store(prepared, KIND), KIND.name, budget)
        except BudgetError as error:
            reasons.append(f"{layout.path} is not used: {error}")
            continue
        except ConfigError:
            pass  # not about the layout: choose_plan() raises it, or compares other stores
        return prepared
    return workload


def pack(
    dataset: Dataset | Path | str,
    *,
    preset: str | None = None,
    config: Path | str | None = None,
    memory: int | str | None = None,
    cache: int | str | None = None,
    neighbor_cache: int | str | None = None,
    disk: int | str | None = None,
    executor: str = "",
    workers: int | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> Packed:
    """Sample the epochs of a run and pack their features; train() with the same options uses them.

    disk: bytes or a size such as '100GB' for the packed files; default: half of the free space.
    executor, workers: where epochs are packed, as --executor; see runtime/executors.py. All else: see train().
    An interrupted call resumes with the same options. Raises ConfigError, BudgetError; DestinationError for a full
    disk.
    """
    callback = Callbacks(callbacks)
    options.update(parse_sizes(memory=memory, cache=cache, neighbor_cache=neighbor_cache, disk=disk))
    source = find_run_source(dataset, options, {NODE: SampledConfig, HOP: HopConfig}, config=config)
    opened = source.dataset
    if options.setdefault("store", KIND.name) != KIND.name:
        raise ConfigError(f"--store {options['store']} cannot be packed; remove it or use --store {KIND.name}")
    if (model := {**source.options, **options}.get("model")) in HOP_MODELS:
        raise ConfigError(f"--model {model} has no batches to pack; use --model {' or '.join(LAYERS)}")
    resolved, choices, task = resolve_config(opened, {**source.options, **options}, preset)
    assert isinstance(resolved, SampledConfig), "models on hop tables have no store, and were refused"
    needs = PlainNeeds(program=measure_program(task.num_bytes), threads=resolved.threads)
    fitted = fit_needs(needs, wish_of(resolved, choices), resolved.memory_bytes)
    if fitted is not None:
        choices = [*(choice for choice in choices if choice.option != MEMORY), fitted.choice()]
        resolved = replace(resolved, memory_bytes=fitted.budget_bytes, total_memory_bytes=0)
    callback.configured(resolved, choices)
    budget = Budget(resolved.memory_bytes)
    if resolved.superbatch:
        raise ConfigError("--superbatch has no effect on pack, which samples whole epochs ahead; leave it out")
    if resolved.sampler == MARIUS:
        raise ConfigError(
            "--sampler marius cannot be packed ahead, because its epochs differ in their number of batches; train with "
            "--store packed, which packs during training"
        )
    opened, _ = with_clusters(opened, resolved, budget, callback.prepared)
    workload = training_workload(resolved, task.seeds, task.held, opened.num_nodes)
    samples = run_samples(resolved, task.seeds.train, opened.num_nodes)
    if opened.feature_table() is not None:
        layouts, _ = _find_layouts(opened, resolved, workload.device_bytes, samples)
        for layout in layouts:
            # A larger --disk than the layout was made for may pack without shared rows.
            is_enough = resolved.disk_bytes == 0 or not layout.has_shared_rows
            if is_enough and len(layout.epochs) >= len(samples.epochs):
                WorkFolder(layout.path).remove_left()
                return Packed(layout, [])
    with nullcontext() if fitted is None else fitted.explained():
        plan = choose_plan(opened, workload, budget)
    callback.planned(plan)
    with open_executor(
        executor,
        workers,
        threads=max(plan.threads, workers or 1),
        memory_bytes=budget.total_bytes,
        engine=open_engine(plan.engine, plan.engine_depth).engine,
    ) as spread:
        return _pack(opened, resolved, workload, plan, budget, samples, callback, spread)


def _pack(
    dataset: Dataset,
    config: SampledConfig,
    workload: Workload,
    plan: SampledPlan,
    budget: Budget,
    samples: Samples,
    callback: Callback,
    executor: Executor | None = None,
) -> Packed:
    with ExitStack() as stack:
        for name, num_bytes in workload.also_held.items():
            stack.enter_context(budget.reserve(name, num_bytes))
        return pack_epochs(
            dataset,
            plan,
            budget,
            samples,
            open_engine(plan.engine, plan.engine_depth).engine,
            disk_bytes=config.disk_bytes or None,
            progress=callback.prepared,
            log=callback.announced,
            executor=executor,
        )


def _has(layout: Layout, settings: TraceSettings, num_batches: int) -> bool:
    epoch = layout.find_epoch(settings)
    return epoch is not None and epoch.num_batches >= num_batches


def _find_layouts(
    dataset: Dataset, config: SampledConfig, device_bytes: int, samples: Samples
) -> tuple[list[Layout], list[str]]:
    """Return the layouts that a run can use, those with most of its epochs first, and why others are not used.

    Of equals those with the shortest segments first, which read the fewest unwanted bytes. --cache and --disk bound
    what a layout keeps in memory, besides device_bytes on a device, and takes on the disk.
    """
    table = dataset.feature_table()
    assert table is not None
    manifests = sorted(scratch_path(dataset.path, config.scratch).glob(f"packed-*/{LAYOUT_FILE}"))
    # Hashing an epoch's order costs more than all else here, so only where there are layouts.
    settings = [samples.settings(dataset, epoch) for epoch in samples.epochs] if manifests else []
    found: list[tuple[int, Layout]] = []
    reasons = []
    for manifest in manifests:
        try:
            layout = read_layout(manifest.parent)
            num_found = sum(_has(layout, each, samples.num_batches) for each in settings)
            if num_found:
                layout.check(table)
        except (FormatError, ReadError) as error:
            reasons.append(f"{manifest.parent} is not used: {error}")
            continue
        held_bytes = max(0, layout.num_held * layout.row_bytes - device_bytes)
        if num_found == 0:
            reasons.append(f"{layout.path} is not used: its batches have {layout.differing(settings[0])}")
        elif config.cache_bytes and held_bytes > config.cache_bytes:
            needed = f"{format_bytes(held_bytes)} of rows in memory, --cache {format_bytes(config.cache_bytes)}"
            reasons.append(f"{layout.path} is not used: it is for {needed}")
        elif config.disk_bytes and layout.num_bytes > config.disk_bytes:
            needed = f"{format_bytes(layout.num_bytes)}, --disk {format_bytes(config.disk_bytes)}"
            enough = f"use --disk {-(-layout.num_bytes // 1_000_000)}MB to train from it"
            reasons.append(f"{layout.path} is not used: it takes {needed}; {enough}")
        else:
            found.append((num_found, layout))
    found.sort(key=lambda each: (-each[0], each[1].longest_segment))
    return [layout for _, layout in found], reasons
