"""`direct`: rows read from the disk for every batch, nothing kept between batches.

Rows of all batches in flight are merged into one read if reading the gap between them costs less than another request.
"""

from __future__ import annotations

import numpy as np

from diskhop.plans import Prediction
from diskhop.protocols import NodeIds, Table
from diskhop.stores.costs import Scenario, predict_epoch
from diskhop.stores.kind import StoreKind
from diskhop.stores.resources import StoreResources
from diskhop.stores.room import divide_for_batches
from diskhop.stores.scan_costs import scan
from diskhop.stores.scanning import NOTHING_FOUND, Found, ScanningStore


def open_direct(table: Table, resources: StoreResources) -> ScanningStore:
    """Open a store that merges reads."""

    def find(ids: NodeIds) -> Found:
        return NOTHING_FOUND._replace(misses=np.arange(len(ids)))

    return ScanningStore(table, resources, np.empty((0, table.row_bytes), np.uint8), find)


def simulate(scenario: Scenario) -> Prediction:
    """Predict an epoch in which every row is read."""
    return predict_epoch(scenario, scan(scenario, scenario.trace.node_ids, find_seconds=0.0))


KIND = StoreKind(name="direct", simplicity=1, open=open_direct, divide=divide_for_batches, simulate=simulate)
