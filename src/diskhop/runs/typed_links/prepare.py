"""Preparing a run on one edge type before its first batch: merged lists, the split, a plan, and a feed to open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from diskhop.batches.typed import SPLIT_BYTES
from diskhop.budget import Budget
from diskhop.config.typed_link import TypedLinkConfig
from diskhop.dataset.dataset import Dataset
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.pipeline.transfer import DeviceCopies
from diskhop.planning.planner import choose_predicted_plan
from diskhop.planning.workload import Workload
from diskhop.runs.callbacks import Callback
from diskhop.runs.devices import device_of, device_row_bytes, held_by_device, with_device
from diskhop.runs.feeds import Feed, PreparedRun
from diskhop.runs.links.batches import LinkPasses
from diskhop.runs.links.feed import OpenGraph
from diskhop.runs.links.prepare import describe_split, held_bytes, larger_lists, message_bytes
from diskhop.runs.links.task import PART_OF, LinkTask, presumed_parts
from diskhop.runs.nodes.workload import planned_config, workload_of
from diskhop.runs.typed.model import types_of_run
from diskhop.runs.typed.prepare import described_types, merge_types, step_measure
from diskhop.runs.typed_links.feed import TypedLinkFeed
from diskhop.runs.typed_links.model import TypedLinkModel, make_link_model
from diskhop.runs.typed_links.passes import check_negatives, typed_passes
from diskhop.runs.typed_links.target import target_of
from diskhop.runtime.progress import Progress, silent
from diskhop.sampling.edge_split.split import open_split
from diskhop.sampling.known_links import KnownLinks


def typed_link_workload(
    merged: Dataset, config: TypedLinkConfig, task: LinkTask, passes: LinkPasses, others: Mapping[str, int]
) -> Workload:
    """Describe a run for the planner.

    merged: with the edges that messages of training use. others: further bytes by name to leave free.
    """
    held = {**held_bytes(config, task), **types_of_run(merged, config).held, **others}
    held |= held_by_device(device_of(config))
    seed_sets = [passes.seed_set(purpose) for purpose in task.used]
    measure = step_measure(merged, config, partial(make_link_model, merged, config, target_of(task)))
    workload = workload_of(config, seed_sets, held, measure)
    values = SPLIT_BYTES.plus(message_bytes(config, task))
    return replace(workload, values=values, reads_lent_rows=False, device_bytes=device_row_bytes(config))


def planned_workload(
    dataset: Dataset, config: TypedLinkConfig, task: LinkTask, progress: Progress = silent
) -> tuple[Dataset, Workload]:
    """Merge the types, and describe a run for the planner before its split is written: all edges stand for training."""
    check_negatives(config, target_of(task))
    merged = merge_types(dataset, config, Budget(config.memory_bytes), progress)
    passes = typed_passes(merged, config, target_of(task), presumed_parts(task))
    return merged, typed_link_workload(merged, config, task, passes, {})


def prepare_typed_links(
    dataset: Dataset, config: TypedLinkConfig, task: LinkTask, budget: Budget, callback: Callback
) -> PreparedRun:
    """Merge the types, write the split if it is missing, and plan. Raises as choose_plan()."""
    target = target_of(task)
    check_negatives(config, target)
    callback.announced(f"Split of edges: {task.split.described}")
    merged = merge_types(dataset, config, budget, callback.prepared)
    if described := types_of_run(merged, config).place.describe():
        callback.announced(described)
    split = open_split(merged, task.split, config.scratch or None, budget, progress=callback.prepared)
    graphs = split.train_graph, split.test_graph
    passes = typed_passes(graphs[0], config, target, {each: split.links[PART_OF[each]] for each in task.used})
    drawing = {"nodes of negatives": passes.train_negatives.num_bytes} if passes.train_negatives.num_bytes else {}
    others = {**larger_lists(graphs, config, task, passes), **drawing}
    workload = typed_link_workload(graphs[0], config, task, passes, others)
    device = device_of(config)
    plan = with_device(choose_predicted_plan(graphs[0], workload, budget), device)
    planned = planned_config(config, plan)

    @contextmanager
    def open_graph(copies: DeviceCopies | None, is_test: bool) -> Iterator[OpenGraph]:
        expected = workload.seed_sets[0]
        with open_pipeline(graphs[is_test], plan, budget, expected=expected, copies=copies) as pipeline:
            yield OpenGraph(pipeline, None)

    @contextmanager
    def open_feed(model: TypedLinkModel) -> Iterator[Feed]:
        with ExitStack() as held:
            for name, num_bytes in {**model.held, **drawing, **held_by_device(device)}.items():
                held.enter_context(budget.reserve(name, num_bytes))
            made = types_of_run(graphs[0], planned).made
            known = KnownLinks(task.split.lists)
            copies = None if device is None else DeviceCopies(device)
            feed = TypedLinkFeed(
                partial(open_graph, copies),
                passes,
                planned,
                known,
                target=target,
                made=made,
                lock=split.lock,
                copies=copies,
            )
            held.callback(feed.close)
            yield feed

    return PreparedRun(
        config=planned,
        plan=plan,
        make_model=partial(make_link_model, graphs[0], planned, target),
        open=open_feed,
        facts=_facts(merged, planned, task, describe_split(config, task, split)),
        device=device,
    )


def _facts(merged: Dataset, config: TypedLinkConfig, task: LinkTask, split: Mapping[str, object]) -> dict[str, object]:
    """Return entries of result.json. The split names the edge types that are held out with the target."""
    target = target_of(task)
    names = ["__".join(target.types.edges[place].ends) for place in target.copies]
    return {"target": config.target, "types": described_types(merged), "split": {**split, "also_held_out": names}}
