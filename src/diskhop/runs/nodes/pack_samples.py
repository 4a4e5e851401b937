"""Packing batches that were sampled elsewhere: `diskhop pack DATASET --samples FOLDER`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from os import PathLike
from pathlib import Path

import numpy as np

from diskhop.batches.record import describe_batch
from diskhop.batches.sizes import BatchSizes
from diskhop.budget import Budget, format_bytes, parse_sizes
from diskhop.config.options import check_arguments
from diskhop.config.sampled import SampledConfig
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.dataset.id_map import IdMap
from diskhop.errors import BudgetError, ConfigError
from diskhop.io.engine import open_engine
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.given_pass import given_pass
from diskhop.pipeline.pack_ahead import Packed, pack_epochs
from diskhop.pipeline.pack_steps import Samples
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.protocols import NodeIds
from diskhop.runs.callbacks import Callback, Callbacks
from diskhop.runtime.progress import Progress
from diskhop.sampling.given_samples import ArraySizes, GivenSamples, find_samples
from diskhop.sampling.topology import open_topology
from diskhop.stores.packed.kind import KIND
from diskhop.system.memory import default_memory_bytes

# Memory in which a file becomes a batch: its arrays, and what finds its edges in the graph.
_BYTES_PER_NODE, _BYTES_PER_EDGE = 64, 190


def pack_samples(
    dataset: Dataset | PathLike[str] | str,
    samples: PathLike[str] | str,
    *,
    memory: int | str | None = None,
    cache: int | str | None = None,
    disk: int | str | None = None,
    scratch: PathLike[str] | str | None = None,
    engine: str | None = None,
    threads: int | None = None,
    callbacks: Sequence[Callback] = (),
) -> Packed:
    """Pack the features of batches that were sampled elsewhere; PackedLoader delivers them.

    samples: a folder with a .npz file per batch, see sampling/given_samples.py.
    memory, cache, disk: bytes or a size such as '2GB'; default: half of the free memory, what is left of it, and half
        of the free space.
    scratch: folder of the layout; default: DATASET/derived. engine, threads: default: chosen.

    Every file is checked before anything is written. An interrupted call resumes. Raises SourceError, naming the file
    and what is wrong in it; ConfigError, BudgetError; DestinationError for a full disk.
    """
    callback, opened = Callbacks(callbacks), as_dataset(dataset)
    sizes_given = parse_sizes(memory=memory, cache=cache, disk=disk)
    check_arguments("pack_samples", SampledConfig, threads=threads, **sizes_given)
    if opened.has_several_types:
        raise ConfigError(
            f"{opened.path}: has several types, --samples are of graphs with one; train without --samples"
        )
    if opened.feature_table() is None:
        raise ConfigError(f"{opened.path}: has no features to pack; use a dataset with features")
    budget = Budget(sizes_given.get("memory_bytes", default_memory_bytes()))
    given, held = find_samples(Path(samples)), {"original ids": opened.id_map().num_bytes}
    workload = Workload(
        seed_sets=(),
        seed=0,
        store=KIND.name,
        engine=engine,
        threads=threads,
        cache_bytes=sizes_given.get("cache_bytes"),
        disk_bytes=sizes_given.get("disk_bytes"),
        scratch=None if scratch is None else str(scratch),
        also_held=held,
        sizes=_check_all(opened, given, budget, callback.prepared),
        is_given=True,
    )
    plan = choose_plan(opened, workload, budget)
    callback.planned(plan)
    with ExitStack() as stack:
        for name, num_bytes in held.items():
            stack.enter_context(budget.reserve(name, num_bytes))
        return pack_epochs(
            opened,
            plan,
            budget,
            Samples(
                pass_of=partial(_pass_of, given),
                epochs=tuple(range(len(given.epochs))),
                num_batches=given.num_batches,
                given=given,
            ),
            open_engine(plan.engine, plan.engine_depth).engine,
            disk_bytes=sizes_given.get("disk_bytes"),
            progress=callback.prepared,
            log=callback.announced,
        )


def _pass_of(given: GivenSamples, epoch: int) -> Pass:
    return given_pass(given.digests[epoch], epoch, given.num_batches)


def _check_all(dataset: Dataset, given: GivenSamples, budget: Budget, progress: Progress) -> BatchSizes:
    """Read every file and return the sizes of the largest batch. Raises BudgetError before a file that does not fit."""
    num_files, id_map = len(given.epochs) * given.num_batches, dataset.id_map()
    with budget.reserve("original ids", id_map.num_bytes):
        needed = [_bytes_to_convert(given.measure(*divmod(index, given.num_batches))) for index in range(num_files)]
        most_bytes = max(needed)
        lacking_bytes = most_bytes - budget.available_bytes
        if lacking_bytes > 0:
            epoch, number = divmod(needed.index(most_bytes), given.num_batches)
            smallest_bytes = budget.total_bytes + lacking_bytes
            raise BudgetError(
                f"{given.epochs[epoch][number]}: takes {format_bytes(most_bytes)} of memory to read, --memory "
                f"{format_bytes(budget.total_bytes)} leaves {format_bytes(budget.available_bytes)}; "
                f"use --memory {-(-smallest_bytes // 1_000_000)}MB or more, or save smaller batches",
                smallest_bytes,
            )
        with budget.reserve("checking samples", most_bytes):
            return _read_all(dataset, given, id_map, progress)


def _bytes_to_convert(sizes: ArraySizes) -> int:
    return max(sizes.num_bytes, _BYTES_PER_NODE * sizes.num_nodes + _BYTES_PER_EDGE * sizes.num_edges)


def _read_all(dataset: Dataset, given: GivenSamples, id_map: IdMap, progress: Progress) -> BatchSizes:
    block_bytes = record_bytes = most_nodes = workspace_bytes = 0
    most_ids: NodeIds = np.empty(0, np.int64)
    num_files = len(given.epochs) * given.num_batches
    # Mapped, since the plan is not made yet; the OS may keep the pages it touches.
    with open_topology(dataset.topology, "mapped", open_engine("threads", 1).engine, Budget(1)) as topology:
        for index in range(num_files):
            batch = given.read(*divmod(index, given.num_batches), topology, id_map)
            block_bytes = max(block_bytes, batch.num_bytes)
            record_bytes = max(record_bytes, describe_batch(batch, topology.num_nodes).num_bytes)
            most_nodes = max(most_nodes, batch.num_nodes)
            most_ids = max(most_ids, batch.node_ids, key=len)
            converting_bytes = _BYTES_PER_NODE * batch.num_nodes + _BYTES_PER_EDGE * len(batch.sources)
            workspace_bytes = max(workspace_bytes, converting_bytes)
            progress("checking samples", index + 1, num_files)
    return BatchSizes(
        block_bytes=block_bytes,
        record_bytes=record_bytes,
        num_nodes=most_nodes,
        num_rows=most_nodes,
        node_ids=np.sort(most_ids),
        hop_read_bytes=0,
        workspace_bytes=workspace_bytes,
    )
