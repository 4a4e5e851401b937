"""Facts about a graph and its features, on which the defaults of training on nodes depend."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diskhop.dataset.dataset import Dataset
from diskhop.dataset.encoding import decode_rows
from diskhop.errors import ReadError
from diskhop.io.values import read_bytes
from diskhop.protocols import Table

# Enough to know the share of zeros to a percent, and read in a fraction of a second from any disk.
_MOST_SAMPLED_ROWS, _MOST_SAMPLED_BYTES = 512, 4 << 20


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """Facts about a graph and its labels.

    num_train: training nodes.
    num_columns: columns of features; 0 without features.
    filled: share of the feature values that are not 0, of a sample of rows.
    has_negative: whether a value of that sample is below 0.
    """

    num_nodes: int
    num_edges: int
    num_train: int
    num_columns: int
    filled: float
    has_negative: bool


def read_facts(dataset: Dataset, num_train: int) -> GraphFacts:
    """Read the facts: some evenly spaced rows of the features, the same in every call. Raises ReadError."""
    table = dataset.feature_table()
    filled, has_negative = (1.0, True) if table is None else _look_at_rows(table, dataset)
    return GraphFacts(
        num_nodes=dataset.num_nodes,
        num_edges=dataset.num_edges,
        num_train=num_train,
        num_columns=0 if table is None else dataset.feature_dim,
        filled=filled,
        has_negative=has_negative,
    )


def _look_at_rows(table: Table, dataset: Dataset) -> tuple[float, bool]:
    """Return the share of values that are not 0, and whether one is below 0."""
    num_sampled = min(table.num_rows, _MOST_SAMPLED_ROWS, max(1, _MOST_SAMPLED_BYTES // table.row_bytes))
    numbers = np.arange(num_sampled) * table.num_rows // max(num_sampled, 1)
    try:
        with table.path.open("rb") as file:
            rows = [read_bytes(file, table.row_bytes, int(number) * table.row_stride) for number in numbers]
    except ReadError:
        raise
    except OSError as error:
        raise ReadError(
            f"{table.path}: cannot be read: {error.strerror}; see: diskhop verify {dataset.path}"
        ) from error
    stored = np.frombuffer(b"".join(rows), np.uint8).reshape(num_sampled, table.row_bytes)
    values = decode_rows(stored, str(dataset.feature_dtype), dataset.feature_dim)
    return float(np.count_nonzero(values) / max(values.size, 1)), bool((values < 0).any())
