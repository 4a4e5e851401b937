"""Rows of nodes that are asked for one batch at a time, through any store, in addition to passes or without any."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch

from diskhop.pipeline.batch import InFlightBatch
from diskhop.pipeline.parts import PipelineParts
from diskhop.protocols import DistinctRows, LookAheadStore, NodeIds, SampledBatch

_NOTHING = np.empty(0, np.int64)


class SingleBatches:
    """Fetches rows of features, one batch after the other. No pass may be under way."""

    def __init__(self, parts: PipelineParts) -> None:
        self._parts = parts
        self._number = 0
        self._looks_ahead = parts.scratch is not None
        if self._looks_ahead:
            cast(LookAheadStore[Any], parts.store).start_pass()

    def fetch(self, rows: NodeIds) -> torch.Tensor:
        """Return the features of nodes, (rows, dim) in the stored dtype, int8 as float32. rows: some may repeat."""
        batch = InFlightBatch(self._number, self._as_batch(rows), 0.0, ends_superbatch=False)
        self._number += 1
        store = self._parts.store
        if store is not None:
            if self._looks_ahead:
                ahead = cast(LookAheadStore[Any], store)
                ahead.make_room(batch.sampled)
                ahead.look_ahead(_OneBatch(batch.sampled), lambda: None)
            batch.ticket = store.submit(batch.sampled, lambda num_bytes: None)
        try:
            self._parts.fetch_rows(batch, with_in_degrees=False)
        finally:
            if store is not None:
                store.release(batch.ticket)
        assert batch.x is not None
        return batch.x

    def _as_batch(self, rows: NodeIds) -> SampledBatch:
        rows = np.ascontiguousarray(rows)
        ids, of_nodes = np.unique(rows, return_inverse=True)
        return SampledBatch(
            number=self._number,
            num_seeds=len(rows),
            node_ids=rows,
            indptr=np.zeros(len(rows) + 1, np.int64),
            sources=np.empty(0, np.int32),
            edge_positions=_NOTHING,
            num_sampled_nodes=(len(rows),),
            num_sampled_edges=(),
            distinct=None if len(ids) == len(rows) else DistinctRows(ids, of_nodes),
        )


class _OneBatch:
    """A trace of one batch; see AccessTrace."""

    def __init__(self, batch: SampledBatch) -> None:
        self._rows = batch.row_ids

    def __len__(self) -> int:
        return 1

    def node_ids(self, index: int) -> NodeIds:
        """See AccessTrace."""
        return self._rows
