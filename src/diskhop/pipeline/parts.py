"""The opened parts that the stages of a pass share, and the memory and rows of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine
from diskhop.counters import FetchCounts
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.made_features import DEGREE
from diskhop.dataset.type_map import TypeMap
from diskhop.pipeline.batch import InFlightBatch, Pass
from diskhop.pipeline.decode import decode_rows, stored_rows
from diskhop.pipeline.device_rows import DeviceRows, GroupDeviceRows, StagedRows
from diskhop.pipeline.made_rows import make_rows
from diskhop.pipeline.sizes import batch_bytes, made_bytes
from diskhop.plans import SampledPlan
from diskhop.protocols import Bytes, FeatureStore, GroupRows, NodeIds, Rows, SampledBatch, TableGroup, TablePart
from diskhop.sampling.cached_topology import AnyTopology
from diskhop.sampling.lists_in_turn import ListsInTurn
from diskhop.stores.resources import PreparedBatches, repeat_rows, whole_rows
from diskhop.system.memory import buffer_bytes


@dataclass(slots=True, kw_only=True, eq=False)
class PipelineParts:
    """A dataset's topology and feature store, open, and the plan to run them by.

    store: None for a dataset without features.
    scratch: folder for traces of superbatches; None if the store does not look ahead.
    prepared: batches prepared before the run; None for none.
    lists: neighbour lists whose memory the store has while batches are fetched; None: lists have their own.
    device_rows: rows in front of the store, for batches that are delivered on a device; None: the store has all.
    """

    dataset: Dataset
    plan: SampledPlan
    topology: AnyTopology
    store: FeatureStore[Any] | None
    engine: Engine
    pool: BufferPool
    scratch: Path | None
    prepared: PreparedBatches | None
    lists: ListsInTurn | None = None
    device_rows: DeviceRows | GroupDeviceRows | None = None

    def find_prepared(self, wanted: Pass) -> Any:
        """Return where a pass's batches are, if all of them were prepared before the run, else None."""
        if self.prepared is None or self.scratch is None:
            return None
        return self.prepared.find(wanted.trace_settings(self.dataset.hash), wanted.numbers)

    def is_prepared(self, wanted: Pass) -> bool:
        """Whether all batches of a pass were prepared before the run."""
        return self.find_prepared(wanted) is not None

    def fetch_bytes(self, sampled: SampledBatch, store_bytes: int) -> int:
        """Bytes of a batch from its submission until its rows are assembled. store_bytes: the store's part."""
        num_bytes = buffer_bytes(sampled.num_bytes) + sampled.repeating_bytes + store_bytes
        if self.plan.bytes_assembled:
            return num_bytes
        return num_bytes + made_bytes(self.dataset, sampled.node_ids) + self._value_bytes(sampled)

    def assembled_bytes(self, sampled: SampledBatch) -> int:
        """Bytes of a batch as the model gets it."""
        return batch_bytes(self.dataset, sampled.num_bytes, sampled.node_ids) + self._value_bytes(sampled)

    def _value_bytes(self, sampled: SampledBatch) -> int:
        return self.plan.values.of(sampled.num_nodes, len(sampled.edge_positions))

    def fetch_rows(self, batch: InFlightBatch, with_in_degrees: bool) -> None:
        """Wait for the rows of a submitted batch and decode them."""
        if self.dataset.types is not None:
            if with_in_degrees:
                batch.in_degrees = torch.from_numpy(self._in_degrees(batch.sampled.node_ids, self.dataset.types))
            self._fetch_typed_rows(batch)
            return
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
        if isinstance(self.device_rows, DeviceRows):
            self._stage(batch, rows, self.device_rows)
            return
        if (distinct := batch.sampled.distinct) is not None:
            rows = repeat_rows(rows, distinct.of_nodes)
        raw, batch.rows = self._contiguous(rows)
        batch.x = decode_rows(raw, self.dataset.feature_dtype, self.dataset.feature_dim)

    def _contiguous(self, rows: Rows) -> tuple[Bytes, NDArray[np.int64] | None]:
        """Return a buffer with the rows, and their places in it; None: in order."""
        if self.plan.bytes_assembled:
            return whole_rows(rows, self.pool, self.plan.threads), None
        (segment,) = rows.segments
        return segment.buffer, segment.from_rows

    def _stage(self, batch: InFlightBatch, rows: Rows, device_rows: DeviceRows) -> None:
        """Take the store's rows as they are, for a device that has others."""
        raw, places = self._contiguous(rows)
        batch.staged = StagedRows(device_rows, stored_rows(raw, self.dataset.feature_dtype), places)
        distinct = batch.sampled.distinct
        batch.x = device_rows.addresses_of(batch.sampled.row_ids, None if distinct is None else distinct.of_nodes)

    def _in_degrees(self, node_ids: NodeIds, types: TypeMap) -> NDArray[np.int64]:
        """Return the in-degrees of merged rows, of all edge types together."""
        degrees = np.zeros(len(node_ids), np.int64)
        of_nodes = types.node_type_of(node_ids)
        for number, destination in enumerate(types.destinations):
            places = np.flatnonzero(of_nodes == destination)
            lists = types.list_starts[number] + node_ids[places] - types.node_starts[destination]
            degrees[places] += self.topology.indptr[lists + 1] - self.topology.indptr[lists]
        return degrees

    def _fetch_typed_rows(self, batch: InFlightBatch) -> None:
        """Do the same for a graph with types: rows of every type with features."""
        batch.x, batch.x_by_type, batch.counts = torch.empty(0, 0), {}, FetchCounts()
        if self.store is None:
            return
        rows = self.store.collect(batch.ticket)
        table, sampled = self.store.table, batch.sampled
        assert isinstance(rows, GroupRows)
        assert isinstance(table, TableGroup)
        batch.counts = rows.counts
        found = {}
        for part in table.parts:
            own = rows.parts[part.name]
            of_nodes = None if sampled.distinct is None else _places_in_part(part, sampled)
            if isinstance(self.device_rows, GroupDeviceRows):
                device_rows = self.device_rows.parts[part.name]
                brought = stored_rows(whole_rows(own, self.pool, self.plan.threads), part.dtype)
                batch.staged_by_type[part.name] = StagedRows(device_rows, brought, None)
                found[part.name] = device_rows.addresses_of(part.find(sampled.row_ids)[1], of_nodes)
                continue
            if of_nodes is not None:
                own = repeat_rows(own, of_nodes)
            raw, places = self._contiguous(own)
            found[part.name] = decode_rows(raw, part.dtype, part.dim)
            if places is not None:
                batch.rows_by_type[part.name] = places
        batch.x_by_type = found


def _places_in_part(part: TablePart, sampled: SampledBatch) -> NDArray[np.int64]:
    """Return which of a part's distinct rows each of its nodes in a disjoint batch has, int64 (nodes)."""
    assert sampled.distinct is not None
    places, _ = part.find(sampled.row_ids)
    nodes, _ = part.find(sampled.node_ids)
    return np.searchsorted(places, sampled.distinct.of_nodes[nodes])
