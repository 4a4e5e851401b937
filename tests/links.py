"""Runs on links of small graphs, and the edges that their batches use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from diskhop.budget import Budget
from diskhop.config.link import LinkConfig
from diskhop.dataset.dataset import Dataset
from diskhop.protocols import SampledBatch
from diskhop.runs.callbacks import Callback
from diskhop.runs.feeds import Feed
from diskhop.runs.links.defaults import resolve_link_config
from diskhop.runs.links.prepare import prepare_links
from diskhop.runs.links.task import LinkTask
from diskhop.sampling.links import LinkBatch

OPTIONS: dict[str, Any] = {
    "task": "link",
    "hidden": 16,
    "fanout": (4, 4),
    "batch_size": 200,
    "epochs": 3,
    "memory_bytes": 200_000_000,
    "threads": 1,
    "engine": "threads",
    "matmul": "blas",
}


def resolved(dataset: Dataset, **options: Any) -> tuple[LinkConfig, LinkTask]:
    config, _, task = resolve_link_config(dataset, {**OPTIONS, **options})
    return config, task


@contextmanager
def open_feed(dataset: Dataset, **options: Any) -> Iterator[Feed]:
    """Open the batches of a run, as training does."""
    config, task = resolved(dataset, **options)
    prepared = prepare_links(dataset, config, task, Budget(config.memory_bytes), Callback())
    with prepared.open(prepared.make_model()) as feed:
        yield feed


def pairs_of(links: LinkBatch) -> set[tuple[int, int]]:
    """Rows of both ends of the edges of a batch."""
    count = len(links.positions)
    ends = links.seeds[links.sources[:count]], links.seeds[links.destinations[:count]]
    return {(int(u), int(v)) for u, v in zip(*ends, strict=True)}


def message_edges(batch: SampledBatch) -> set[tuple[int, int]]:
    """Edges of a batch by rows, as source and destination."""
    targets = np.repeat(np.arange(len(batch.indptr) - 1), np.diff(batch.indptr))
    rows = batch.node_ids[np.stack([batch.sources, targets])]
    return {(int(u), int(v)) for u, v in rows.T}


def both_ways(pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    return pairs | {(v, u) for u, v in pairs}
