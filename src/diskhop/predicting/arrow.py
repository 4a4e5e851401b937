"""Ids, classes and probabilities as columns of Arrow, where they have a single value per node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from diskhop.predicting.table import ID, PredictionTable
from diskhop.runtime.arrow import plain_values


def single_type(table: PredictionTable, word: str) -> pa.DataType:
    """Return the type of a column with a single value per node, or of the ids."""
    if word == ID:
        return pa.large_string() if table.ids.are_names else pa.int64()
    if word == "class" and table.class_names is not None:
        return pa.large_string()
    return pa.from_numpy_dtype(np.dtype(next(each.dtype for each in table.columns if each.name == word)))


def single_values(table: PredictionTable, word: str, values: Any) -> pa.Array:
    """Return values of such a column, as a group has them; classes become names."""
    array = values if isinstance(values, pa.Array) else plain_values(values)
    return table.class_names.take(array) if word == "class" and table.class_names is not None else array
