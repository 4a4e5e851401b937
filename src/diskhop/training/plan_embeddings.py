"""Ways to train embeddings side by side: numbers of partitions, and how many of them are in memory at once."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.embed_config import EmbedConfig
from diskhop.embedding.draws import Draw, generator
from diskhop.embedding.edges import EdgeRows, edges_bytes
from diskhop.embedding.gradients import StepOptions
from diskhop.embedding.scores import SCORES
from diskhop.embedding.step import Step, Table
from diskhop.errors import BudgetError
from diskhop.io.device_model import DeviceModel
from diskhop.plan import EmbedPlan, Prediction
from diskhop.planning.embedding import NUMBERS_OF_PARTITIONS, plan_embedding
from diskhop.planning.options import Option, Ranking, rank
from diskhop.training.embed_defaults import embed_size
from diskhop.training.process import reproducible

# More partitions in memory than three are fewer to move, and take more of it.
_BUFFERS = (3, 4, 6)
_MOST_ROWS, _LEAST_SECONDS, _MOST_STEPS = 200_000, 0.5, 20


def rank_partitions(dataset: Dataset, config: EmbedConfig, device: DeviceModel) -> Ranking[EmbedPlan]:
    """The configuration with other numbers of partitions. Raises BudgetError where none fits."""
    edges_per_second = measure_edges_per_second(dataset, config)
    size = embed_size(dataset, config)
    refused: dict[str, str] = {}
    found: list[Option[EmbedPlan]] = []
    smallest: BudgetError | None = None
    for number in NUMBERS_OF_PARTITIONS:
        if number > size.num_nodes:
            continue
        name = f"{number} partition{'s' if number > 1 else ''}"
        options: list[Option[EmbedPlan]] = []
        for buffer in dict.fromkeys(min(buffer, max(2, number)) for buffer in _BUFFERS):
            tried = replace(config, partitions=number, buffer=buffer)
            try:
                plan = plan_embedding(tried, size, Budget(config.memory_bytes))
            except BudgetError as error:
                refused[name] = str(error)
                smallest = error
                break
            predicted = predict_embedding(plan, tried, size.num_edges, edges_per_second, device)
            named = f"{name}, buffer {buffer}" if number > buffer else name
            options.append(Option(name=named, plan=plan, predicted=predicted, simplicity=number * 100 + buffer))
        if options:
            refused.pop(name, None)
            # Of as many seconds the one that takes the least memory.
            found.append(min(options, key=lambda option: option.seconds(config.epochs)))
    if not found:
        assert smallest is not None, "a graph has nodes"
        raise smallest
    return rank(found, refused, config.epochs, "embeddings in")


def predict_embedding(
    plan: EmbedPlan, config: EmbedConfig, num_edges: int, edges_per_second: float, device: DeviceModel
) -> Prediction:
    """An epoch in the middle of a run: partitions that the order moves, beside training where it can be."""
    moved_bytes = config.passes * plan.loads * plan.partition_bytes
    read_bytes, written_bytes = moved_bytes, moved_bytes
    if plan.edges_on_disk:
        read_bytes += edges_bytes(num_edges, SCORES[config.model].uses_relations)
    io_seconds = read_bytes / device.sequential_read_bytes_per_second
    io_seconds += written_bytes / device.sequential_write_bytes_per_second
    compute_seconds = num_edges / edges_per_second
    hidden = plan.prefetchable if plan.overlap and plan.num_slots > plan.buffer else 0.0
    return Prediction(
        epoch_seconds=max(compute_seconds, hidden * io_seconds) + (1 - hidden) * io_seconds,
        io_seconds=io_seconds,
        cores_seconds=compute_seconds,
        compute_seconds=compute_seconds,
        # Embeddings are drawn and written once.
        open_seconds=plan.num_partitions * plan.partition_bytes / device.sequential_write_bytes_per_second,
        reads=config.passes * plan.loads,
        bytes_read=read_bytes,
        bytes_written=written_bytes,
        disk_bytes=2 * plan.num_partitions * plan.partition_bytes,
    )


def measure_edges_per_second(dataset: Dataset, config: EmbedConfig) -> float:
    """Edges that the step trains, by the configuration's threads: measured on some rows with any values."""
    score = SCORES[config.model]
    num_rows = max(2, min(_MOST_ROWS, dataset.num_nodes))
    draws = np.random.default_rng(0)

    def table(rows: int, dim: int) -> Table:
        values = draws.standard_normal((rows, dim), np.float32) * np.float32(config.init_scale)
        return Table(values, np.ones((rows, 1 if config.adagrad == "row" else dim), np.float32))

    num_relations = max(1, dataset.num_relations) * (2 if config.reciprocal else 1)
    relations = table(num_relations, score.relation_dim(config.dim)) if score.uses_relations else None
    options: dict[str, Any] = config.step_options()
    num_chunks = -(-config.batch_size // config.chunk_size)
    with reproducible(config.threads):
        step = Step(StepOptions(**options), table(num_rows, config.dim), relations)
        seconds, num_steps, began = 0.0, 0, time.perf_counter()
        while num_steps < 2 or (num_steps < _MOST_STEPS and time.perf_counter() - began < _LEAST_SECONDS):
            ends = draws.integers(num_rows, size=(2, config.batch_size))
            kinds = draws.integers(max(1, dataset.num_relations), size=config.batch_size).astype(np.int32)
            edges = EdgeRows(ends[0], kinds if relations is not None else None, ends[1])
            negatives = draws.integers(num_rows, size=(2, num_chunks, config.negatives))
            started = time.perf_counter()
            step.run(edges, negatives, lambda number: generator(config.seed, Draw.DROPOUT, number))
            # The first one makes memory and code ready.
            seconds += time.perf_counter() - started if num_steps else 0.0
            num_steps += 1
    return config.batch_size * (num_steps - 1) / seconds
