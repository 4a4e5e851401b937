"""The systems that the GNNDrive paper compares (section 5), as plans of diskhop, and a run by one.

A *case* is a system with the numbers that its plan depends on, and its *work*: 'sample' takes batches without rows,
'extract' with their rows, 'train' trains a model on them; 'converge' trains whole epochs from the start and validates
each. benchmarks/paper_gnndrive.py runs each in its own process: `gnndrive_systems.py DATASET RUN`, with case and plan
as JSON; it prints the costs of its epochs as JSON. MariusGNN is marius_system.py: an epoch of it begins with the first
of its states. Appendix B's reads need no system.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

import ginex_systems
from diskhop._native import BufferPool, Engine, File, keyed_permutation
from diskhop.budget import Budget
from diskhop.config.learning import CROSS_ENTROPY
from diskhop.config.options import AUTO
from diskhop.config.sampled import SampledConfig
from diskhop.config.train import CLASSIFICATION
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.disk.measure import (
    SEQUENTIAL_BYTES,
    SEQUENTIAL_DEPTH,
    measure_read_seconds,
    random_offsets,
    reads_per_ticket,
    write_file,
)
from diskhop.disk.model import DiskModel
from diskhop.errors import BudgetError
from diskhop.nn.models import build_model
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.plans import SampledPlan
from diskhop.protocols import NodeRows, Purpose
from diskhop.runs.callbacks import Callback
from diskhop.runs.nodes.objective import make_objective
from diskhop.runs.nodes.sampled import SampledFeed
from diskhop.runs.nodes.samplers import train_pass, train_sampler, train_seed_set
from diskhop.runs.nodes.task import read_task
from diskhop.runs.trainer import Trainer
from diskhop.sampling.marius import states_of
from diskhop.stores.shared import LEAST_EXTRACTORS, shared_reserves
from diskhop.system.memory import default_threads
from diskhop.system.transfers import transfers
from ginex_systems import FANOUTS, lists_mapped_as_by, register_store, workload_of
from marius_system import STORE, Partitions, partitions_within, register_buffer
from papers import cache_lists, narrow, read_plan, without_features
from stand_in import StandIn
from turns import peak_rss_bytes
from workloads import HIDDEN, SEED

Work = Literal["sample", "extract", "train", "converge"]

STORE_OF = {"in memory": "memory", "GNNDrive": "shared", "GNNDrive, in order": "shared"}
# Of the rows: MariusGNN keeps its partitions of the graph in half of its memory.
MARIUS_FRACTION = 0.25
# Ginex's caches, 24 and 6 of the paper's 32 GB: of both, for rows.
GINEX_SHARE = 0.8
# Of the nodes of Papers100M, trained on.
TRAIN_SHARE = 0.011
# Batches before the measured ones: what fills PyG+'s page cache, Ginex's cache and GNNDrive's buffer.
_WARM_UP = 16
_LEARNING_RATE = 0.003
_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One system at one point of a figure.

    num_batches: batches per epoch; 'converge' has whole epochs.
    step_seconds: seconds of each step of a stand-in for the trainer; 0: the model is trained.
    buffer: size of GNNDrive's buffer, as a multiple of the smallest, for the fewest extractors; 0: the planner chooses.
    samplers, extractors: GNNDrive's threads that sample, and batches that it extracts at once; 0: the planner chooses.
    maps_lists: GNNDrive has `indptr` in memory and `indices` mapped, as the paper's has; False: the planner chooses.
    """

    system: str
    work: Work
    dim: int
    batch_size: int
    memory_bytes: int
    num_batches: int = 0
    num_epochs: int = 1
    step_seconds: float = 0.0
    buffer: int = 0
    samplers: int = 0
    extractors: int = 0
    maps_lists: bool = False


def plan_case(dataset: Dataset, case: Case, device: DiskModel) -> SampledPlan:
    """Plan a case. Raises BudgetError if its memory has no room for it."""
    ginex_case = ginex_systems.Case(
        system=case.system,
        dim=case.dim,
        batch_size=case.batch_size,
        memory_bytes=case.memory_bytes,
        num_batches=case.num_batches,
        share=GINEX_SHARE,
    )
    if case.system == "MariusGNN":
        return _plan_marius(dataset, case, workload_of(dataset, ginex_case, "static"), device)
    if case.system not in STORE_OF:
        return ginex_systems.plan_case(dataset, ginex_case, device)
    wanted = replace(
        workload_of(dataset, ginex_case, STORE_OF[case.system]),
        ordered=case.system != "GNNDrive",
        reads_lent_rows=True,
    )
    plan = choose_plan(dataset, wanted, Budget(case.memory_bytes), device)
    plan = _with_buffer(dataset, plan, case) if case.buffer else plan
    return _as_given(plan, case, dataset.num_nodes) if case.system.startswith("GNNDrive") else plan


def _as_given(plan: SampledPlan, case: Case, num_nodes: int) -> SampledPlan:
    """Return GNNDrive's plan with the samplers, extractors and place of the lists of a case.

    Raises BudgetError if samplers have no memory, or extractors no slots of the buffer.
    """
    reserved, share = dict(plan.reserved), plan.share
    if case.maps_lists:
        reserved.pop("topology")
        plan = replace(plan, topology="mapped", topology_cache_bytes=0)
    if case.samplers:
        for name in ("sampling", "sampled ahead"):
            reserved[name] = -(-reserved[name] * case.samplers // plan.sampling_threads)
        plan = replace(plan, sampling_threads=case.samplers)
    if case.extractors:
        needed_rows = min((case.extractors + 1) * plan.batch_rows, num_nodes)
        if needed_rows > share.buffer_rows:
            raise BudgetError(
                f"--extractors {case.extractors} need {needed_rows} slots of {share.buffer_rows}; use fewer"
            )
        share = replace(share, extractors=case.extractors, most_extracting=case.extractors)
    Budget(plan.memory_bytes).require(reserved)
    return replace(plan, reserved=reserved, share=share)


def _plan_marius(dataset: Dataset, case: Case, wanted: Workload, device: DiskModel) -> SampledPlan:
    """Plan with the store `static` the memory of the partition buffer."""
    train_ids, table = dataset.split_rows("train"), dataset.feature_table()
    assert train_ids is not None
    assert table is not None
    seed_set = train_seed_set(_train_config(case, dataset.num_nodes), NodeRows(train_ids), dataset.num_nodes)
    cache_bytes = min(partitions_of(dataset.num_nodes).resident_rows, table.num_rows) * table.row_bytes
    wanted = replace(wanted, seed_sets=(seed_set,), cache_bytes=cache_bytes)
    return replace(choose_plan(dataset, wanted, Budget(case.memory_bytes), device), store=STORE)


def partitions_of(num_nodes: int) -> Partitions:
    """Return MariusGNN's partitions."""
    return partitions_within(MARIUS_FRACTION, num_nodes)


def _with_buffer(dataset: Dataset, plan: SampledPlan, case: Case) -> SampledPlan:
    """Return the plan with a multiple of the smallest buffer: one batch for the model and one for each extractor."""
    extractors = case.extractors or LEAST_EXTRACTORS
    table = dataset.feature_table()
    assert table is not None
    rows = min(case.buffer * (extractors + 1) * plan.batch_rows, table.num_rows)
    reserves = shared_reserves(table, rows, plan.batch_rows)
    reserved = {**plan.reserved, **reserves}
    Budget(plan.memory_bytes).require(reserved)
    share = replace(
        plan.share,
        reserves=reserves,
        buffer_rows=rows,
        cache_rows=rows,
        extractors=extractors,
        most_extracting=2 * extractors,
    )
    return replace(plan, share=share, reserved=reserved)


def run_case(path: Path, case: Case, plan: SampledPlan) -> dict[str, Any]:
    """Run the case's epochs after a warm-up: means per batch, the record of each epoch, and peaks.

    began, ended: start and end of the measured epochs, by the clock that all processes share.
    """
    converges = case.work == "converge"
    dataset = narrow(open_dataset(path), case.dim)
    if case.work == "sample":
        dataset = without_features(dataset)
    # The labels are not in the case's memory: like the model, they are overhead, which every system has.
    task = read_task(dataset, split=0, evaluate=converges, memory_bytes=_NO_LIMIT)
    assert task.labels is not None
    train_ids = task.seeds.train
    budget = Budget(plan.memory_bytes)
    torch.set_num_threads(default_threads())
    config = _train_config(case, dataset.num_nodes)
    register_store(case.system)
    buffers = register_buffer(partitions_of(dataset.num_nodes))
    num_columns = dataset.feature_dim or dataset.made_features.dim
    objective = make_objective(config, dataset, task)
    trainer = _trainer_type(case)(
        lambda: build_model(config, num_columns, dataset.num_outputs), objective, config, Callback()
    )
    if plan.topology == "mapped":
        # As earlier epochs leave the page cache: pages that stay are part of the measurement.
        cache_lists(dataset)
    with (
        lists_mapped_as_by(case.system),
        budget.reserve("seeds", 2 * train_ids.nbytes),
        open_pipeline(dataset, plan, budget) as pipeline,
    ):

        def feed(num_batches: int, epoch: int) -> SampledFeed:
            if case.system == "MariusGNN":  # the first batches of its own order
                some = replace(config, max_batches=num_batches)
                return SampledFeed(pipeline, task.seeds, some, uses_degrees=False)
            ids = _some(train_ids, num_batches * case.batch_size, epoch) if num_batches else train_ids
            return SampledFeed(pipeline, replace(task.seeds, train=ids), config, uses_degrees=False)

        first_epoch = 0
        if not converges:
            trainer.train_pass(feed(_WARM_UP, 0), 0)
            first_epoch = 1
        epochs, read_before_bytes, began = [], transfers().bytes_read, time.monotonic()
        for epoch in range(first_epoch, first_epoch + case.num_epochs):
            fed = feed(0 if converges else case.num_batches, epoch)
            record = trainer.train_pass(fed, epoch)
            if converges:
                record["valid"] = trainer.evaluate(fed, Purpose.VALID, epoch).value
            epochs.append(record)
        ended, read_bytes = time.monotonic(), transfers().bytes_read - read_before_bytes
    num_batches = sum(record["batches"] for record in epochs)
    a_batch = {
        name: sum(record[name] for record in epochs) / num_batches
        for name, value in epochs[-1].items()
        if name not in ("epoch", "batches", "loss", "valid") and not isinstance(value, dict)
    }
    return {
        **a_batch,
        "kernel_bytes": read_bytes / num_batches,
        "epochs": epochs,
        "load_seconds": float(np.mean(buffers[0].load_seconds)) if buffers else 0.0,
        "began": began,
        "ended": ended,
        "peak_rss_bytes": peak_rss_bytes(),
        "reserved_peak_bytes": budget.peak_bytes,
    }


def _trainer_type(case: Case) -> Callable[..., Trainer]:
    """Return what trains: a stand-in that takes no time where batches are not trained on."""
    if case.work in ("sample", "extract"):
        return partial(StandIn, step_seconds=0.0)
    return partial(StandIn, step_seconds=case.step_seconds) if case.step_seconds else Trainer


def _some(ids: NodeRows, num_seeds: int, epoch: int) -> NodeRows:
    """Return the training nodes that come first in an epoch."""
    return NodeRows(ids[keyed_permutation(len(ids), SEED, int(Purpose.TRAIN), epoch)[:num_seeds]])


def count_epoch(dataset: Dataset, case: Case) -> tuple[int, int]:
    """Count the batches of an epoch of TRAIN_SHARE of the nodes, and the partitions that MariusGNN loads in it."""
    config, train_ids = _train_config(case, dataset.num_nodes), dataset.split_rows("train")
    assert train_ids is not None
    every = max(1, int(len(train_ids) / (TRAIN_SHARE * dataset.num_nodes)))
    num_batches = len(train_pass(config, NodeRows(train_ids[::every]), dataset.num_nodes, 0).numbers)
    if case.system != "MariusGNN":
        return num_batches, 0
    states = [set(state) for state in states_of(train_sampler(config), SEED, 0)]
    return num_batches, len(states[0]) + sum(len(after - before) for before, after in pairwise(states))


def _train_config(case: Case, num_nodes: int) -> SampledConfig:
    """Return the options of the paper's SAGE: three layers, 256 wide."""
    own: dict[str, Any] = partitions_of(num_nodes).options if case.system == "MariusGNN" else {}
    return SampledConfig(
        **own,
        model="sage",
        layers=len(FANOUTS),
        hidden=HIDDEN,
        norm="layer",
        dropout=0.0,
        fanout=FANOUTS,
        eval_fanout=FANOUTS,
        batch_size=case.batch_size,
        eval_batch_size=case.batch_size,
        epochs=case.num_epochs,
        lr=_LEARNING_RATE,
        task=CLASSIFICATION,
        loss=CROSS_ENTROPY,
        metric="accuracy",
        seed=SEED,
        memory_bytes=case.memory_bytes,
        store=AUTO,
        engine=AUTO,
        threads=default_threads(),
    )


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """Seconds per read in a stream with many reads in flight: by the clock, and of all threads' CPU."""

    seconds: float
    cpu_seconds: float


def make_file(path: Path, num_bytes: int) -> None:
    """Write a file of about num_bytes random bytes to the disk."""
    buffer = BufferPool(0).take(64 << 20)
    buffer[:] = np.random.default_rng(0).integers(0, 256, len(buffer), np.uint8)
    group_bytes = SEQUENTIAL_DEPTH * SEQUENTIAL_BYTES
    file = File(str(path), "write")
    write_file(Engine("threads", SEQUENTIAL_DEPTH), file, buffer, num_bytes // group_bytes * group_bytes, np.inf)


def time_reads(path: Path, engine: str, depth: int, num_bytes: int, direct: bool, seconds: float) -> ReadTimes | None:
    """Time random reads of a file that is not cached, `depth` in flight (appendix B); None if that is not possible."""
    file = File(str(path), "read", direct)
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    opened = Engine(engine, depth)
    if opened.depth != depth or file.direct != direct:
        return None
    offsets = random_offsets(
        file.num_bytes, num_bytes, reads_per_ticket(depth, num_bytes), np.random.default_rng(depth)
    )
    buffer = BufferPool(0).take(max(num_bytes * depth, 1 << 20))
    cpu_before, began = time.process_time(), time.perf_counter()
    a_read = measure_read_seconds(opened, file, buffer, num_bytes, seconds, offsets)
    cores = (time.process_time() - cpu_before) / (time.perf_counter() - began)
    return ReadTimes(a_read, cores * a_read)


def main() -> None:
    path, run = sys.argv[1:]
    document = json.loads(run)
    print(json.dumps(run_case(Path(path), Case(**document["case"]), read_plan(document["plan"]))))


if __name__ == "__main__":
    main()
