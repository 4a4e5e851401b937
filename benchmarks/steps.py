"""Training steps that benchmarks time: shared batches, sampled before, and the costs of each step."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import graphs
from diskhop._native import BufferPool
from diskhop.protocols import Purpose, SampledBatch, neighbor_spec
from diskhop.sampling.samplers import open_sampler

BATCH_SIZE, DIM, CLASSES = 1000, 128, 47

# (features of the batch's nodes, batch, labels of its seeds) -> the loss, or 0.
Step = Callable[[Any, SampledBatch, Any], float]


class Steps(NamedTuple):
    """Seconds and loss of every batch. grown_bytes: peak resident memory during all of them, less that before."""

    seconds: list[float]
    losses: list[float]
    grown_bytes: int


def run_steps(make_step: Callable[[], Step], folder: Path, fanout: tuple[int, ...], num_batches: int) -> Steps:
    """Sample all batches, then make the step and run it on each batch, everything in memory."""
    import torch

    batches = _sample_batches(folder, fanout, num_batches)
    most_nodes = max(batch.num_nodes for batch in batches)
    # As in a run: in huge pages, in one buffer for all batches.
    memory = BufferPool(0).take(most_nodes * DIM * 4)
    x = torch.from_numpy(memory.view(np.float32).reshape(most_nodes, DIM)).normal_()
    labels = torch.randint(0, CLASSES, (BATCH_SIZE,))
    step = make_step()
    before_bytes = _resident_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # The peak from here on.
    seconds, losses = [], []
    for batch in batches:
        started = time.perf_counter()
        losses.append(step(x[: batch.num_nodes], batch, labels))
        seconds.append(time.perf_counter() - started)
    return Steps(seconds, losses, max(_resident_bytes("VmHWM") - before_bytes, 0))


def _sample_batches(folder: Path, fanout: tuple[int, ...], num_batches: int) -> list[SampledBatch]:
    files = graphs.make_rmat(folder)
    with graphs.open_in_memory(files.topology) as topology:
        sampler = open_sampler(topology, neighbor_spec(fanout), 0)
        parts = (files.train_ids[start:][:BATCH_SIZE] for start in range(0, num_batches * BATCH_SIZE, BATCH_SIZE))
        return [
            sampler.sample(seeds, purpose=Purpose.TRAIN, epoch=0, number=number) for number, seeds in enumerate(parts)
        ]


def _resident_bytes(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
