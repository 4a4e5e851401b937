"""Ranges of feature columns, streamed; of a large table from evenly spaced blocks of rows."""

from __future__ import annotations

from dataclasses import dataclass

from diskhop.dataset.encoding import decode_rows
from diskhop.dataset.files import read_rows
from diskhop.dataset.node_set import NodeSet
from diskhop.dataset.statistics.columns import ColumnRanges
from diskhop.dataset.statistics.stored_rows import block_starts
from diskhop.runtime.progress import Progress, silent

FEATURES = "features"
# A second or two of a disk and a core.
MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class FeatureStatistics:
    """Features of nodes.

    ranges: of each column, of the rows that were read.
    num_rows: rows of the table; more than those that were read if it is large.
    """

    ranges: ColumnRanges
    num_rows: int

    @property
    def is_sample(self) -> bool:
        """Whether some rows were not read."""
        return self.ranges.num_rows < self.num_rows


def measure_features(
    nodes: NodeSet, progress: Progress = silent, most_bytes: int = MOST_BYTES
) -> FeatureStatistics | None:
    """Measure the columns of features; None without features."""
    table = nodes.feature_table()
    if table is None:
        return None
    ranges = ColumnRanges(nodes.feature_dim)
    starts, rows = block_starts(table.num_rows, table.row_stride, most_bytes)
    blocks = read_rows(table.path, table.row_stride, table.num_rows, rows, starts.tolist())
    for number, block in enumerate(blocks, start=1):
        ranges.add(decode_rows(block, nodes.feature_dtype, nodes.feature_dim))
        progress(FEATURES, number, len(starts))
    return FeatureStatistics(ranges, table.num_rows)
