"""The first layer's rows: a dataset's features, or those made for a graph without any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
import torch

from diskhop._native import Engine
from diskhop.dataset.dataset import Dataset
from diskhop.hops.make.lists import dataset_lists
from diskhop.hops.stream.features import FeatureReader
from diskhop.hops.stream.lists import indptr_parts
from diskhop.hops.stream.parts import Rows
from diskhop.pipeline.made_rows import make_rows


class FirstRows(Protocol):
    """Rows that table 0 is made of."""

    def parts(self, firsts: Iterable[int], stop: int) -> Iterator[Rows]:
        """Yield parts, given the first row of each, up to row stop.

        A part is valid until the next one is requested.
        """


class MadeRows:
    """Rows of made features, in parts."""

    def __init__(self, dataset: Dataset, part_rows: int) -> None:
        self._dataset = dataset
        self._part_rows = part_rows

    def parts(self, firsts: Iterable[int], stop: int) -> Iterator[Rows]:
        """See FirstRows."""
        lists = dataset_lists(self._dataset.topology)
        for first, indptr in indptr_parts(lists, firsts, stop, self._part_rows):
            rows = np.arange(first, first + len(indptr) - 1)
            yield make_rows(self._dataset.made_features, rows, torch.from_numpy(np.diff(indptr))).numpy()


def first_rows(dataset: Dataset, part_rows: int, engine: Engine) -> FirstRows:
    """Open the rows of table 0."""
    table = dataset.feature_table()
    if table is None:
        return MadeRows(dataset, part_rows)
    return FeatureReader(table, dataset.feature_dtype, dataset.feature_dim, part_rows, engine)


def first_row_bytes(dataset: Dataset) -> int:
    """Return the bytes of a feature row on disk; 0 for made ones."""
    table = dataset.feature_table()
    return 0 if table is None else table.row_stride


def first_dim(dataset: Dataset) -> int:
    """Return the columns of the features."""
    return dataset.feature_dim or dataset.made_features.dim
