"""The opened parts that the stages of a pass share, and the memory and rows of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from diskhop._native import BufferPool, Engine
from diskhop.counters import FetchCounts
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.made_features import DEGREE
from diskhop.pipeline.batch import InFlightBatch
from diskhop.pipeline.decode import decode_rows
from diskhop.pipeline.made_rows import make_rows
from diskhop.pipeline.sizes import batch_bytes, bytes_per_row_made
from diskhop.plans import SampledPlan
from diskhop.protocols import FeatureStore, SampledBatch
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.stores.resources import PreparedBatches, repeat_rows, whole_rows
from diskhop.system.memory import buffer_bytes


@dataclass(slots=True, kw_only=True, eq=False)
class PipelineParts:
    """A dataset's topology and feature store, open, and the plan to run them by.

    store: None for a dataset without features.
    scratch: folder for traces of superbatches; None if the store does not look ahead.
    prepared: batches prepared before the run; None for none.
    """

    dataset: Dataset
    plan: SampledPlan
    topology: AnyTopology
    store: FeatureStore[Any] | None
    engine: Engine
    pool: BufferPool
    scratch: Path | None
    prepared: PreparedBatches | None

    def fetch_bytes(self, sampled: SampledBatch, store_bytes: int) -> int:
        """Bytes of a batch from its submission until its rows are assembled. store_bytes: the store's part."""
        num_bytes = buffer_bytes(sampled.num_bytes) + sampled.repeating_bytes + store_bytes
        if self.plan.bytes_assembled:
            return num_bytes
        return num_bytes + sampled.num_nodes * bytes_per_row_made(self.dataset) + self._value_bytes(sampled)

    def assembled_bytes(self, sampled: SampledBatch) -> int:
        """Bytes of a batch as the model gets it."""
        return batch_bytes(self.dataset, sampled.num_bytes, sampled.num_nodes) + self._value_bytes(sampled)

    def _value_bytes(self, sampled: SampledBatch) -> int:
        return self.plan.values.of(sampled.num_nodes, len(sampled.edge_positions))

    def fetch_rows(self, batch: InFlightBatch, with_in_degrees: bool) -> None:
        """Wait for the rows of a submitted batch and decode them."""
        made = self.dataset.made_features
        if with_in_degrees or (self.store is None and made.kind == DEGREE):
            ids = batch.sampled.node_ids
            batch.in_degrees = torch.from_numpy(self.topology.indptr[ids + 1] - self.topology.indptr[ids])
        if self.store is None:
            batch.counts = FetchCounts()
            batch.x = make_rows(made, batch.sampled.node_ids, batch.in_degrees)
            return
        rows = self.store.collect(batch.ticket)
        batch.counts = rows.counts
        if (distinct := batch.sampled.distinct) is not None:
            rows = repeat_rows(rows, distinct.of_nodes)
        if self.plan.bytes_assembled:
            raw = whole_rows(rows, self.pool, self.plan.threads)
        else:
            (segment,) = rows.segments
            raw, batch.rows = segment.buffer, segment.from_rows
        batch.x = decode_rows(raw, self.dataset.feature_dtype, self.dataset.feature_dim)
