"""Measured rates that predictions use: reads from the disk, and copies in memory."""

from __future__ import annotations

import time

import numpy as np

from diskhop._native import copy_rows
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.disk.model import DiskModel
from diskhop.disk.probe import probe, remembered_model

_COPIED_BYTES = 128 << 20
_NUM_COPIES = 3
# Reading a smaller table whole takes a fraction of the time that measuring the disk takes.
_WORTH_MEASURING_BYTES = 256 << 20


def disk_model(dataset: Dataset, engine: str) -> DiskModel:
    """Return the cost of reads from the disk of the features: measured once per disk, if the table is large."""
    table = dataset.feature_table()
    if table is None or table.num_rows * table.row_stride < _WORTH_MEASURING_BYTES:
        return remembered_model(dataset.path, engine)
    return probe(dataset.path, engine=engine, existing_file=table.path)


def measure_copy_seconds(row_bytes: int, num_rows: int, budget: Budget) -> float:
    """Return the seconds in which one core copies one row from a random place among num_rows rows."""
    # A few times the size of the CPU's caches is enough.
    num_rows = max(16, min(num_rows, min(_COPIED_BYTES, budget.available_bytes // 4) // row_bytes))
    with budget.reserve("measuring", min(2 * num_rows * row_bytes, budget.available_bytes)):
        rows = np.ones((num_rows, row_bytes), np.uint8)
        out = np.ones((max(8, num_rows // 2), row_bytes), np.uint8)
        places = np.random.default_rng(0).integers(0, num_rows, len(out))
        best = float("inf")
        for _ in range(_NUM_COPIES):
            started = time.perf_counter()
            copy_rows(rows, places, out, None, 1)
            best = min(best, time.perf_counter() - started)
    return best / len(out)
