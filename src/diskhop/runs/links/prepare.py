"""Preparing a run on links before its first batch: the split, a plan, batches packed ahead, and a feed to open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from diskhop.budget import Budget
from diskhop.config.link import PAIR_METRICS, LinkConfig
from diskhop.dataset.dataset import Dataset
from diskhop.nn.link_model import LinkModel, build_link_model
from diskhop.pipeline.pack_steps import Samples
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.pipeline.transfer import DeviceCopies
from diskhop.planning.workload import Workload
from diskhop.plans import PreparedBytes
from diskhop.protocols import Purpose
from diskhop.runs.callbacks import Callback
from diskhop.runs.devices import device_of, device_row_bytes, held_by_device, with_device
from diskhop.runs.feeds import Feed, PreparedRun
from diskhop.runs.links.batches import LinkPasses, make_passes
from diskhop.runs.links.feed import LinkFeed, OpenGraph
from diskhop.runs.links.measures import BYTES_PER_EDGE
from diskhop.runs.links.task import PART_OF, LinkTask, presumed_parts
from diskhop.runs.nodes.packing import prepare
from diskhop.runs.nodes.sampled import edge_weights_of, step_measure
from diskhop.runs.nodes.workload import planned_config, workload_of
from diskhop.sampling.columns import columns_bytes
from diskhop.sampling.edge_split.split import EdgeSplit, open_split
from diskhop.sampling.known_links import KnownLinks
from diskhop.sampling.samplers import lists_of
from diskhop.sampling.topology import topology_bytes

# A batch without the edges that it is scored on is a copy: indptr, and per edge the source, the position and a mask.
_COPIED = PreparedBytes(per_node=8, per_edge=16)
# Scores of an edge with a candidate in the place of either end, masks of both comparisons, and one of those left out.
_SCORE_BYTES = 2 * 4 + 3
# Marks of known edges for both ends, and the copies that finding them takes.
_MARK_BYTES = 2 + 2


def held_bytes(config: LinkConfig, task: LinkTask) -> dict[str, int]:
    """Return bytes of memory by name that a run keeps besides its batches."""
    measured = [count for purpose, count in task.num_edges.items() if purpose != Purpose.TRAIN]
    held = {"given split": task.split.rule.num_bytes}
    held["scores of held-out edges"] = BYTES_PER_EDGE * max(measured, default=0)
    held["scores of candidates"] = _SCORE_BYTES * _ranked_pairs(config, task)
    return {name: num_bytes for name, num_bytes in held.items() if num_bytes}


def _ranked_pairs(config: LinkConfig, task: LinkTask) -> int:
    """Return how many edges times candidates a batch of evaluation ranks for each end."""
    if config.metric in PAIR_METRICS:
        return 0
    measured = [count for purpose, count in task.num_edges.items() if purpose != Purpose.TRAIN]
    return min(config.eval_batch_size, max(measured, default=0)) * min(config.eval_candidates, task.num_nodes)


def link_workload(
    dataset: Dataset, config: LinkConfig, task: LinkTask, passes: LinkPasses, others: Mapping[str, int]
) -> Workload:
    """Describe a run for the planner.

    dataset: with the edges that messages of training use. others: further bytes by name to leave free.
    """
    weights = edge_weights_of(dataset, config)
    held = {**held_bytes(config, task), **({} if weights is None else weights.reserved), **others}
    held |= held_by_device(device_of(config))
    seed_sets = [passes.seed_set(purpose) for purpose in task.used]
    workload = workload_of(
        config, seed_sets, held, step_measure(dataset, config, partial(_make_model, dataset, config))
    )
    added = message_bytes(config, task)
    values = added if weights is None else added.plus(weights.added)
    return replace(workload, values=values, device_bytes=device_row_bytes(config))


def message_bytes(config: LinkConfig, task: LinkTask) -> PreparedBytes:
    """Return what messages without scored edges, and marks of known edges, add to a batch."""
    marks = _MARK_BYTES * _ranked_pairs(config, task) if config.eval_filtered else 0
    return _COPIED.plus(PreparedBytes(per_batch=marks))


def planned_workload(dataset: Dataset, config: LinkConfig, task: LinkTask) -> Workload:
    """Describe a run for the planner before its split is written: all edges stand for those of training."""
    dataset = _with_features(dataset, config)
    return link_workload(dataset, config, task, make_passes(config, dataset, presumed_parts(task)), {})


def prepare_links(
    dataset: Dataset, config: LinkConfig, task: LinkTask, budget: Budget, callback: Callback
) -> PreparedRun:
    """Write the split if it is missing, plan, and pack batches ahead where that pays. Raises as packing's prepare()."""
    callback.announced(f"Split of edges: {task.split.described}")
    split = open_split(dataset, task.split, config.scratch or None, budget, progress=callback.prepared)
    graphs = [_with_features(each, config) for each in (split.train_graph, split.test_graph)]
    parts = {purpose: split.links[PART_OF[purpose]] for purpose in task.used}
    passes = make_passes(config, graphs[0], parts)
    workload = link_workload(graphs[0], config, task, passes, larger_lists(graphs, config, task, passes))
    samples = Samples(pass_of=passes.train_pass, epochs=tuple(range(config.epochs)), num_batches=passes.num_batches)
    preparation = prepare(graphs[0], config, workload, samples, budget, callback)
    device = device_of(config)
    plan = with_device(preparation.plan, device)
    planned = planned_config(config, plan)

    @contextmanager
    def open_graph(copies: DeviceCopies | None, is_test: bool) -> Iterator[OpenGraph]:
        graph = graphs[is_test]
        weights = edge_weights_of(graph, config)
        with ExitStack() as held:
            for name, num_bytes in {} if weights is None else weights.reserved.items():
                held.enter_context(budget.reserve(name, num_bytes))
            expected = workload.seed_sets[0]
            pipeline = held.enter_context(open_pipeline(graph, plan, budget, expected=expected, copies=copies))
            opened = None if weights is None else weights.open(pipeline.engine, plan.max_gap_bytes)
            yield OpenGraph(pipeline, opened)

    @contextmanager
    def open_feed(model: LinkModel) -> Iterator[Feed]:
        with ExitStack() as held:
            for name, num_bytes in held_by_device(device).items():
                held.enter_context(budget.reserve(name, num_bytes))
            copies = None if device is None else DeviceCopies(device)
            feed = LinkFeed(
                partial(open_graph, copies),
                passes,
                planned,
                KnownLinks(task.split.lists),
                uses_degrees=model.uses_degrees,
                lock=split.lock,
                copies=copies,
            )
            held.callback(feed.close)
            yield feed

    return PreparedRun(
        config=planned,
        plan=plan,
        make_model=lambda: _make_model(graphs[0], planned),
        open=open_feed,
        facts={"split": describe_split(config, task, split)},
        preparation=preparation.to_dict(),
        device=device,
    )


def describe_split(config: LinkConfig, task: LinkTask, split: EdgeSplit) -> dict[str, object]:
    """Return the entry of result.json about the split."""
    counts = task.split.counts
    return {
        "wanted": config.link_split,
        "edges": dict(zip(("train", "valid", "test"), counts.positives, strict=True)),
        "is_undirected": counts.is_undirected,
        "path": str(split.path),
    }


def larger_lists(graphs: Sequence[Dataset], config: LinkConfig, task: LinkTask, passes: LinkPasses) -> dict[str, int]:
    """Return the bytes by which lists and weights of the test graph, which is opened last, exceed those of training."""
    if graphs[0].num_edges == graphs[1].num_edges or Purpose.TEST not in task.used:
        return {}
    sizes = []
    for graph in graphs:
        files = lists_of(graph, [passes.seed_set(purpose).sampler for purpose in task.used])
        weights = edge_weights_of(graph, config)
        reserved = 0 if weights is None else sum(weights.reserved.values())
        sizes.append(topology_bytes(files, "memory") + sum(columns_bytes(files.columns, "memory").values()) + reserved)
    return {"validation edges, for test": max(0, sizes[1] - sizes[0])}


def _with_features(dataset: Dataset, config: LinkConfig) -> Dataset:
    return dataset.with_made_features(config.features, config.seed) if config.features else dataset


def _make_model(dataset: Dataset, config: LinkConfig) -> LinkModel:
    return build_link_model(config, dataset.feature_dim or dataset.made_features.dim)
