"""`pread`: one read per row, nothing kept between batches: the naive baseline, as DGL's on-disk features do."""

from __future__ import annotations

import numpy as np

from diskhop._native import RowReader
from diskhop.counters import FetchCounts
from diskhop.plans import Prediction
from diskhop.protocols import Bytes, NodeIds, Table
from diskhop.stores.costs import BatchCost, Scenario, predict_epoch
from diskhop.stores.gathering import GatheringStore
from diskhop.stores.kind import StoreKind
from diskhop.stores.resources import StoreResources, open_reader
from diskhop.stores.room import divide_for_batches

_MERGE_NOTHING = -1
# Share of small rows in adjacent blocks that become one request; where rows share blocks few do.
_MERGED_SHARE = 0.3


def open_pread(table: Table, resources: StoreResources) -> GatheringStore:
    """Open a store that reads each row alone."""
    reader = open_reader(RowReader, table, resources, _MERGE_NOTHING)

    def read_into(ids: NodeIds, out: Bytes) -> FetchCounts:
        counts = FetchCounts(rows_requested=len(ids), bytes_needed=out.nbytes)
        counts.add_reads(*reader.read(ids, out))
        return counts

    return GatheringStore(table, resources, read_into)


def simulate(scenario: Scenario) -> Prediction:
    """Predict an epoch from the blocks that each row touches."""
    table, num_rows, alignment = scenario.table, scenario.trace.num_rows, scenario.table_alignment
    machine = scenario.machine
    read_bytes = -(-table.row_bytes // alignment) * alignment
    # Rows come in order: a row in the block of the one before is there already, one in the next block is merged.
    starts = [ids.astype(np.int64) * table.row_stride // alignment for ids in scenario.trace.node_ids]
    blocks_per_row = -(-table.row_stride // alignment)
    merged = 1.0 if table.row_stride >= alignment else _MERGED_SHARE
    distances = [np.diff(blocks) for blocks in starts]
    requests = sum(
        1 + np.count_nonzero(each) - merged * np.count_nonzero(each == blocks_per_row) for each in distances
    ) / len(starts)
    fetching = BatchCost(
        reads=num_rows,
        bytes_read=num_rows * read_bytes,
        io_seconds=requests * machine.disk.predict_seconds(read_bytes, scenario.plan.engine_depth),
        cores_seconds=num_rows * (scenario.cores.row + machine.copy_seconds),
    )
    return predict_epoch(scenario, fetching)


KIND = StoreKind(name="pread", simplicity=7, open=open_pread, divide=divide_for_batches, simulate=simulate)
