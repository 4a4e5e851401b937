"""Predicted cost of an epoch of embeddings: the measured training step, and partitions read and written."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop.config.embed import EmbedConfig
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import DiskModel
from diskhop.embedding.device.step import DeviceEdges, DeviceStep, DeviceTable
from diskhop.embedding.partitions.edges import EdgeRows, edges_bytes
from diskhop.embedding.scoring.scores import SCORES
from diskhop.embedding.step.draws import Draw, generator
from diskhop.embedding.step.gradients import Draws, StepOptions
from diskhop.embedding.step.step import Step, Table
from diskhop.nn.reproducible import reproducible
from diskhop.plans import EmbedPlan, Prediction

_MOST_ROWS, _LEAST_SECONDS, _MOST_STEPS = 200_000, 0.5, 20


def predict_embedding(
    plan: EmbedPlan,
    config: EmbedConfig,
    num_edges: int,
    edges_per_second: float,
    disk: DiskModel,
    copy_bytes_per_second: float = math.inf,
) -> Prediction:
    """Predict an epoch in the middle of a run. Partitions that the order can prefetch move during training.

    edges_per_second: that all processes train together.
    disk: of all of them, whose reads and writes are those of the prediction.
    copy_bytes_per_second: rate of copies to the device and back, which follow a read and precede a write.
    """
    moved_bytes = config.passes * plan.loads * plan.partition_bytes
    read_bytes, written_bytes = moved_bytes, moved_bytes
    if plan.edges_on_disk:
        read_bytes += edges_bytes(num_edges, SCORES[config.model].uses_relations)
    io_seconds = read_bytes / disk.sequential_read_bytes_per_second
    io_seconds += written_bytes / disk.sequential_write_bytes_per_second
    io_seconds += 2 * moved_bytes / copy_bytes_per_second
    compute_seconds = num_edges / edges_per_second
    hidden_seconds = plan.prefetchable * io_seconds if plan.overlap else 0.0
    return Prediction(
        epoch_seconds=compute_seconds + io_seconds - min(hidden_seconds, plan.trained_meanwhile * compute_seconds),
        io_seconds=io_seconds,
        cores_seconds=compute_seconds,
        compute_seconds=compute_seconds,
        # Embeddings are initialised and written once.
        open_seconds=plan.num_partitions * plan.partition_bytes / disk.sequential_write_bytes_per_second,
        reads=config.passes * plan.loads,
        bytes_read=read_bytes,
        bytes_written=written_bytes,
        disk_bytes=2 * plan.num_partitions * plan.partition_bytes,
    )


def with_swaps_explained(plan: EmbedPlan, config: EmbedConfig, predicted: Prediction, disk: DiskModel) -> EmbedPlan:
    """Return the plan with a reason that compares a swap with the training meanwhile (Legend, Theorem 3)."""
    if not (plan.overlap and plan.loads * plan.prefetchable):
        return plan
    # Only prefetchable swaps have training meanwhile that does not need the slot.
    num_swaps = config.passes * plan.loads * (plan.prefetchable if config.reuses_slots else 1)
    seconds = plan.partition_bytes / disk.sequential_write_bytes_per_second
    seconds += plan.partition_bytes / disk.sequential_read_bytes_per_second
    meanwhile = plan.trained_meanwhile * predicted.compute_seconds / num_swaps
    verdict = "hidden" if meanwhile >= seconds else f"{seconds / meanwhile:.1f} times as many edges would hide it"
    line = f"A swap moves partitions for {seconds:.2g} s, while edges are trained for {meanwhile:.2g} s: {verdict}"
    return replace(plan, reasons=(*plan.reasons, line))


def measure_edges_per_second(
    dataset: Dataset, config: EmbedConfig, room_bytes: int, device: torch.device | None = None
) -> float:
    """Measure how many edges per second the training step processes, on rows with random values.

    room_bytes: memory for those rows, their sums of squares included. device: where they are; None: in memory.
    """
    num_rows = max(2, min(_MOST_ROWS, dataset.num_nodes, room_bytes // (8 * config.dim)))
    with reproducible(config.threads, device):
        step = RandomSteps(dataset, config, num_rows, device)
        seconds, num_steps, began = 0.0, 0, time.perf_counter()
        while num_steps < 2 or (num_steps < _MOST_STEPS and time.perf_counter() - began < _LEAST_SECONDS):
            # The first step allocates memory and compiles code.
            taken = step.run()
            seconds += taken if num_steps else 0.0
            num_steps += 1
    return config.batch_size * (num_steps - 1) / seconds


class RandomSteps:
    """Training steps on batches of random edges, with rows of random values.

    num_rows: rows of nodes. device: where they are; None: in memory.

    table_bytes: bytes of the rows.
    """

    def __init__(self, dataset: Dataset, config: EmbedConfig, num_rows: int, device: torch.device | None) -> None:
        self._config, self._num_rows, self._num_relations = config, num_rows, max(1, dataset.num_relations)
        self._draws = np.random.default_rng(0)
        score = SCORES[config.model]
        nodes, relations = self._table(num_rows, config.dim), None
        if score.uses_relations:
            num_relations = self._num_relations * (2 if config.reciprocal else 1)
            relations = self._table(num_relations, score.relation_dim(config.dim))
        self._has_relations = relations is not None
        tables = [nodes] if relations is None else [nodes, relations]
        self.table_bytes = sum(each.values.nbytes + each.squares.nbytes for each in tables)
        options: dict[str, Any] = config.step_options()
        self._step = _step_of(StepOptions(**options), nodes, relations, device)

    def run(self) -> float:
        """Take a step. Returns its seconds, without those of drawing edges."""
        config, draws = self._config, self._draws
        ends = draws.integers(self._num_rows, size=(2, config.batch_size))
        kinds = draws.integers(self._num_relations, size=config.batch_size).astype(np.int32)
        edges = EdgeRows(ends[0], kinds if self._has_relations else None, ends[1])
        num_chunks = -(-config.batch_size // config.chunk_size)
        negatives = draws.integers(self._num_rows, size=(2, num_chunks, config.negatives))
        started = time.perf_counter()
        self._step(edges, negatives, lambda number: generator(config.seed, Draw.DROPOUT, number))
        return time.perf_counter() - started

    def _table(self, rows: int, dim: int) -> Table:
        config = self._config
        values = self._draws.standard_normal((rows, dim), np.float32) * np.float32(config.init_scale)
        return Table(values, np.ones((rows, 1 if config.adagrad == "row" else dim), np.float32))


def _step_of(
    options: StepOptions, nodes: Table, relations: Table | None, device: torch.device | None
) -> Callable[[EdgeRows, NDArray[np.int64], Draws], float]:
    """Return a training step on tables in memory, or on copies of them on a device."""
    if device is None:
        return Step(options, nodes, relations).run

    def copied(table: Table) -> DeviceTable:
        return DeviceTable(torch.from_numpy(table.values).to(device), torch.from_numpy(table.squares).to(device))

    step = DeviceStep(options, copied(nodes), None if relations is None else copied(relations))

    def run(edges: EdgeRows, negatives: NDArray[np.int64], draws: Draws) -> float:
        ends = (torch.from_numpy(each).to(device) for each in (edges.sources, edges.destinations))
        numbers = None if edges.relations is None else torch.from_numpy(edges.relations).to(device)
        sources, destinations = ends
        there = DeviceEdges(sources, numbers, destinations)
        return step.run(there, torch.from_numpy(negatives).to(device), draws)

    return run
