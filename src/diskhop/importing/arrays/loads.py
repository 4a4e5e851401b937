"""Loads of arrays, nodes and edges, for several kinds of source."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from diskhop.importing.arrays.npy import StoredArray
from diskhop.importing.columns import count_tasks
from diskhop.importing.estimate import Load
from diskhop.importing.source import Column, SourceAttribute


def load_of_array(array: StoredArray | None) -> Load:
    """Estimate the load of reading an array."""
    if array is None:
        return Load()
    num_bytes = array.num_items * array.dtype.itemsize
    if array.packed_bytes is None:
        return Load(source_bytes=num_bytes)
    return Load(source_bytes=array.packed_bytes, inflated_bytes=num_bytes)


def load_of_edges(array: StoredArray) -> Load:
    """Estimate the load of edges (2, edges) or (edges, 2)."""
    archived_bytes = 0 if array.packed_bytes is None else array.num_items * array.dtype.itemsize
    return load_of_array(array) + Load(num_edges=array.num_items // 2, archived_edge_bytes=archived_bytes)


def load_of_nodes(count: int, features: Column | None, labels: Column | None) -> Load:
    """Estimate the load of writing nodes, without reading their columns."""
    load = Load(num_nodes=count)
    if features is not None:
        num_values = count * features.shape[1]
        item_bytes = 2 if features.dtype == np.float16 else 4
        load += Load(feature_values=num_values, feature_bytes=num_values * item_bytes)
    if labels is not None:
        load += Load(label_bytes=count * (4 * count_tasks(labels) or 8))
    return load


def load_of_edge_values(num_edges: int, weights: object | None, times: object | None) -> Load:
    """Estimate the load of writing weights and times of edges."""
    value_bytes = 4 * (weights is not None) + 8 * (times is not None)
    return Load(value_bytes=num_edges * value_bytes)


def load_of_attributes(count: int, attributes: Mapping[str, SourceAttribute]) -> Load:
    """Estimate the load of writing attributes of nodes."""
    return Load(label_bytes=count * sum(each.row_bytes for each in attributes.values()))


def load_of_edge_attributes(num_edges: int, attributes: Mapping[str, SourceAttribute]) -> Load:
    """Estimate the load of writing attributes of edges; their numbers are kept until then."""
    row_bytes = sum(each.row_bytes for each in attributes.values())
    return Load(value_bytes=num_edges * row_bytes, kept_bytes=8 * num_edges if row_bytes else 0)
