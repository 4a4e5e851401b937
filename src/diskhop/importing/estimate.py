"""Predicts disk space, memory and time of an import before it starts. Pure arithmetic, no I/O.

A *load* is the amount of work in a source: counts and bytes, exact or roughly right. An *estimate* is what a load takes
with given options on a given machine. Seconds should be within a factor of two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from diskhop.budget import format_bytes
from diskhop.dataset.encoding import row_bytes
from diskhop.dataset.manifest import edge_id_dtype
from diskhop.dataset.sort.plan import bytes_in_memory
from diskhop.disk.model import DiskModel
from diskhop.importing.options import ImportOptions
from diskhop.importing.tools import ImportLimits

# A guess: the number of nodes is unknown before edges are read, and nodes take little next to the edges.
EDGES_PER_NODE = 16
_KEY_BYTES = 8
_NUMBERED_KEY_BYTES = 16
_INDEX_BYTES = 4

# Work per second of one core, by field of a load. Measured as the process's CPU time on a virtual machine with sources
# of 50 to 130 MB (gzip and .npz of random ids, pairs of 13 bytes, names of 11, tables of 2.5 M edges and 400,000 nodes
# of 18 columns). Work of _ALONE uses one thread, that of _TOGETHER all of them.
_ALONE = {"inflated_bytes": 180e6, "number_text_bytes": 32e6, "table_values": 16e6}
_TOGETHER = {"pair_text_bytes": 60e6, "name_text_bytes": 15e6, "table_text_bytes": 36e6, "table_ids": 5e6}
# Edges per second: sorted into lists; counted and renumbered for the hot order; searched for loops and duplicates.
_SORTED_EDGES = 15e6
_HOT_EDGES = 30e6
_TIDIED_EDGES = 25e6
# Values per second: converted and written with their checksums; drawn at random.
_WRITTEN_VALUES = 150e6
_RANDOM_VALUES = 200e6
# For syncing files and folders, and opening DuckDB a few times.
_LEAST_SECONDS = 0.2
# Speedup of n threads is n to this power: they share memory bandwidth, the disk and Python.
_THREADS_POWER = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The amount of work in a source; loads add up. Every field is a number of bytes unless its name says otherwise.

    To read:
    source_bytes: files of the source.
    inflated_bytes: content that comes out of compression.
    pair_text_bytes: text with whole numbers as ids.
    name_text_bytes: text with names as ids, which are listed and looked up.
    number_text_bytes: text of other numbers.
    table_text_bytes: text that becomes Parquet first.
    table_ids: number of ids taken from tables.
    table_values: number of other values taken from tables.

    To keep until the dataset is finished:
    kept_bytes: files in the work folder.
    archived_edge_bytes: edges in archives; they are unpacked into memory, or to disk if they do not fit.

    To write:
    num_nodes, num_edges: counts.
    value_bytes: weights and times of edges.
    feature_values: number of feature values.
    feature_bytes: features, unless --dtype changes their size.
    label_bytes, triple_bytes, name_bytes: labels, triples, names.
    """

    source_bytes: int = 0
    inflated_bytes: int = 0
    pair_text_bytes: int = 0
    name_text_bytes: int = 0
    number_text_bytes: int = 0
    table_text_bytes: int = 0
    table_ids: int = 0
    table_values: int = 0
    kept_bytes: int = 0
    archived_edge_bytes: int = 0
    num_nodes: int = 0
    num_edges: int = 0
    value_bytes: int = 0
    feature_values: int = 0
    feature_bytes: int = 0
    label_bytes: int = 0
    triple_bytes: int = 0
    name_bytes: int = 0

    def __add__(self, other: Load) -> Load:
        return Load(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Prediction for one import.

    source_bytes: files of the source.
    result_bytes: the dataset.
    work_bytes: peak disk space, including the dataset.
    memory_bytes: the budget.
    least_memory_bytes: smallest budget that reading the source needs.
    seconds: duration.
    disk: whether the disk's speed was measured or assumed.
    """

    source_bytes: int
    result_bytes: int
    work_bytes: int
    memory_bytes: int
    least_memory_bytes: int
    seconds: float
    disk: str

    def __str__(self) -> str:
        assumed = " (disk speed assumed)" if self.disk == "assumed" else ""
        return (
            f"{format_bytes(self.source_bytes)} to import: about {format_bytes(self.result_bytes)} on disk "
            f"({format_bytes(self.work_bytes)} at peak), {format_bytes(self.memory_bytes)} memory, "
            f"{format_seconds(self.seconds)}{assumed}"
        )


def estimate_import(
    load: Load,
    options: ImportOptions,
    *,
    least_memory: Mapping[str, int],
    memory_bytes: int,
    threads: int,
    disk_model: DiskModel,
    limits: ImportLimits,
) -> Estimate:
    """Predict what a load takes. least_memory: smallest reservations, by name."""
    ways = 2 if options.undirected else 1
    num_edges = ways * load.num_edges
    random_values = load.num_nodes * (options.random_features or 0)
    feature_values = load.feature_values + random_values
    feature_bytes = load.feature_bytes + 4 * random_values
    if options.dtype is not None:
        scale_bytes = row_bytes(options.dtype, 0)
        feature_bytes = feature_values * (row_bytes(options.dtype, 1) - scale_bytes) + load.num_nodes * scale_bytes
    keeps_edge_ids = limits.keeps_edge_ids(options.edge_ids, load.num_edges, load.value_bytes > 0)
    edge_id_bytes = np.dtype(edge_id_dtype(load.num_edges)).itemsize if keeps_edge_ids else 0
    list_bytes = (_INDEX_BYTES + edge_id_bytes) * num_edges + ways * load.value_bytes + 8 * load.num_nodes
    label_bytes = load.label_bytes + (8 * load.num_nodes if options.random_labels else 0)
    column_bytes = feature_bytes + label_bytes + load.triple_bytes + load.name_bytes
    is_hot = options.order == "hot"
    if is_hot:
        column_bytes += 8 * load.num_nodes
    result_bytes = list_bytes + column_bytes

    key_bytes = _NUMBERED_KEY_BYTES if keeps_edge_ids or load.value_bytes else _KEY_BYTES
    sorted_bytes = bytes_in_memory(num_edges, key_bytes, 1, limits.sort) if num_edges else 0
    kept_bytes = load.kept_bytes
    if load.archived_edge_bytes + sorted_bytes > memory_bytes:
        kept_bytes += load.archived_edge_bytes
    spilled_bytes = num_edges * key_bytes if sorted_bytes > memory_bytes else 0
    moved_bytes = feature_bytes if is_hot and feature_bytes > memory_bytes else 0
    work_bytes = kept_bytes + spilled_bytes + moved_bytes + result_bytes

    alone = sum(getattr(load, name) / rate for name, rate in _ALONE.items())
    alone += feature_values / _WRITTEN_VALUES + random_values / _RANDOM_VALUES
    if ways == 2 or "drop" in (options.self_loops, options.duplicates):
        alone += num_edges / _TIDIED_EDGES
    together = sum(getattr(load, name) / rate for name, rate in _TOGETHER.items())
    together += num_edges / _SORTED_EDGES + (num_edges / _HOT_EDGES if is_hot else 0)
    passing_bytes = kept_bytes + spilled_bytes + moved_bytes
    disk_seconds = (load.source_bytes + passing_bytes) / disk_model.sequential_read_bytes_per_second
    disk_seconds += (result_bytes + passing_bytes) / disk_model.sequential_write_bytes_per_second
    return Estimate(
        source_bytes=load.source_bytes,
        result_bytes=result_bytes,
        work_bytes=work_bytes,
        memory_bytes=memory_bytes,
        least_memory_bytes=sum(least_memory.values()),
        seconds=_LEAST_SECONDS + alone + together / threads**_THREADS_POWER + disk_seconds,
        disk=disk_model.source,
    )


def format_seconds(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours."""
    if seconds < 90:
        return f"{max(1.0, seconds):.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
