"""Predicted cost of an epoch on hop tables: the model, and rows copied in memory or read in chunks."""

from __future__ import annotations

from functools import partial

import torch

from diskhop.budget import Budget
from diskhop.config.hop import HopConfig
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import DiskModel
from diskhop.hops.read.placement import Placement
from diskhop.hops.tables import TableShape
from diskhop.nn.dry_run import measure_step_seconds
from diskhop.nn.models import build_hop_model
from diskhop.nn.reproducible import reproducible
from diskhop.planning.measure import measure_copy_seconds
from diskhop.plans import Prediction


def hop_step_seconds(
    dataset: Dataset, config: HopConfig, shape: TableShape, num_tables: int, device: torch.device | None = None
) -> float:
    """Measure the seconds of a training step on one batch of rows of num_tables tables.

    device: where the model computes; None: in memory.
    """
    x = torch.full((num_tables, min(config.batch_size, shape.num_rows), shape.dim), 0.01, device=device)
    num_outputs = dataset.num_outputs
    with reproducible(config.threads, device):
        make_model = partial(build_hop_model, config, shape.dim, num_tables, num_outputs)
        return measure_step_seconds(make_model, config.lr, (x,), device)


def predict_hops(
    config: HopConfig,
    shape: TableShape,
    num_tables: int,
    placement: Placement,
    num_train: int,
    step_seconds: float,
    disk: DiskModel,
    budget: Budget,
    copy_rate: float = 0.0,
) -> Prediction:
    """Predict an epoch over num_train rows of each of num_tables tables, read from where they are placed.

    budget: its processes share the batches, the disk, and tables in memory.
    disk: of all of them.
    copy_rate: bytes per second of copies to a device, which overlap with all else; 0 without one.
    """
    num_batches = -(-num_train // config.batch_size)
    num_batches = min(num_batches, config.max_batches or num_batches)
    num_rows = min(num_batches * config.batch_size, num_train)
    num_bytes = num_rows * num_tables * shape.row_bytes
    # Of the process that has most.
    own_batches = -(-num_batches // budget.num_processes)
    own_rows = min(own_batches * config.batch_size, num_rows)
    copy_seconds = measure_copy_seconds(shape.row_bytes, num_rows, budget) * own_rows * num_tables
    compute_seconds = own_batches * step_seconds
    cores_seconds = compute_seconds + copy_seconds / config.threads
    transfer_seconds = 0.0
    if placement.place == "device":
        # Rows are chosen there.
        cores_seconds = compute_seconds
    elif copy_rate:
        transfer_seconds = own_rows * num_tables * shape.row_bytes / copy_rate
    rate = disk.sequential_read_bytes_per_second
    if placement.place != "disk":
        num_loads = budget.num_processes if placement.place == "device" else 1  # each has a device of its own
        return Prediction(
            epoch_seconds=max(cores_seconds, transfer_seconds),
            io_seconds=0.0,
            cores_seconds=cores_seconds,
            compute_seconds=compute_seconds,
            open_seconds=num_loads * num_tables * shape.num_bytes / rate,
            hit_rate=1.0,
        )
    io_seconds = num_bytes / rate
    # The model waits for the first batch; later reads overlap with it (double buffering).
    first_seconds = io_seconds / max(1, own_batches)
    return Prediction(
        epoch_seconds=first_seconds + max(io_seconds, cores_seconds, transfer_seconds),
        io_seconds=io_seconds,
        cores_seconds=cores_seconds,
        compute_seconds=compute_seconds,
        reads=num_tables * -(-num_rows // config.chunk_rows),
        bytes_read=num_bytes,
    )
