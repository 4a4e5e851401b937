"""What an import will take, before it starts: bytes of disk and memory, and seconds. Pure arithmetic, no I/O.

A *load* is what a source brings, as far as looking at it tells: counts and bytes, exact or about right. An *estimate*
is what becomes of it with some options, on some machine. Seconds are meant to be within a factor of two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from diskhop.budget import format_bytes
from diskhop.dataset.encoding import row_bytes
from diskhop.dataset.sort.plan import bytes_in_memory
from diskhop.disk.model import DiskModel
from diskhop.importing.options import ImportOptions
from diskhop.importing.tools import ImportLimits

# Nobody knows how many nodes there are before their edges are read; a guess, for what is small beside the edges.
EDGES_PER_NODE = 16


_KEY_BYTES = 8
_NUMBERED_KEY_BYTES = 16
_INDEX_BYTES = 4

# What one core does in a second, of the fields of a load: measured as the process's CPU time on a virtual machine with
# sources of 50 to 130 MB (gzip and .npz of random ids, pairs of 13 bytes, names of 11, tables of 2.5 M edges and
# 400,000 nodes of 18 columns).
_ALONE = {"inflated_bytes": 180e6, "number_text_bytes": 32e6, "table_values": 16e6}
_TOGETHER = {"pair_text_bytes": 60e6, "name_text_bytes": 15e6, "table_text_bytes": 36e6, "table_ids": 5e6}
# Edges a second: sorted into lists; counted and renumbered for the hot order; looked through for loops and duplicates.
_SORTED_EDGES = 15e6
_HOT_EDGES = 30e6
_TIDIED_EDGES = 25e6
# Values a second: converted and written with their checksums; made up.
_WRITTEN_VALUES = 150e6
_RANDOM_VALUES = 200e6
# Synced files and folders, and DuckDB, which is opened a few times.
_LEAST_SECONDS = 0.2
# Of two threads each does less than one alone: they wait for memory, the disk and Python.
_THREADS_POWER = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a source brings; loads add up.

    To read: source_bytes: of its files. inflated_bytes: of what comes out of compression. pair_text_bytes: text whose
    ids are whole numbers; name_text_bytes: text whose ids are names, which are listed and looked up; number_text_bytes:
    text of other numbers; table_text_bytes: text that becomes Parquet first. table_ids, table_values: taken of tables.
    On the way: kept_bytes: what reading leaves in the work folder; archived_edge_bytes: edges that are unpacked, into
    memory where they fit. To write: num_nodes, num_edges; value_bytes: weights and times of edges; feature_values,
    which are feature_bytes unless --dtype says; label_bytes; triple_bytes; name_bytes.
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
    """About what an import takes.

    result_bytes: the dataset. work_bytes: on the disk at most, the dataset included. memory_bytes: the budget;
    least_memory_bytes: what reading takes of it at least. disk: whether its speed was measured or assumed.
    """

    source_bytes: int
    result_bytes: int
    work_bytes: int
    memory_bytes: int
    least_memory_bytes: int
    seconds: float
    disk: str

    def __str__(self) -> str:
        assumed = " (the disk's speed is assumed)" if self.disk == "assumed" else ""
        return (
            f"{format_bytes(self.source_bytes)}: about {format_bytes(self.result_bytes)} on the disk and "
            f"{format_bytes(self.work_bytes)} while it works, {format_bytes(self.memory_bytes)} of memory, "
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
    """Add up what a load takes. least_memory: what is reserved at least, by name."""
    ways = 2 if options.undirected else 1
    num_edges = ways * load.num_edges
    random_values = load.num_nodes * (options.random_features or 0)
    feature_values = load.feature_values + random_values
    feature_bytes = load.feature_bytes + 4 * random_values
    if options.dtype is not None:
        scale_bytes = row_bytes(options.dtype, 0)
        feature_bytes = feature_values * (row_bytes(options.dtype, 1) - scale_bytes) + load.num_nodes * scale_bytes
    list_bytes = _INDEX_BYTES * num_edges + ways * load.value_bytes + 8 * load.num_nodes
    column_bytes = feature_bytes + load.label_bytes + load.triple_bytes + load.name_bytes
    is_hot = options.order == "hot"
    if is_hot:
        column_bytes += 8 * load.num_nodes
    result_bytes = list_bytes + column_bytes

    key_bytes = _NUMBERED_KEY_BYTES if load.value_bytes else _KEY_BYTES
    sorted_bytes = bytes_in_memory(num_edges, key_bytes, 1, limits.sort) if num_edges else 0
    kept_bytes = load.kept_bytes
    if load.archived_edge_bytes + sorted_bytes > memory_bytes:
        kept_bytes += load.archived_edge_bytes
    spilled_bytes = num_edges * key_bytes if sorted_bytes > memory_bytes else 0
    dealt_bytes = feature_bytes if is_hot and feature_bytes > memory_bytes else 0
    work_bytes = kept_bytes + spilled_bytes + dealt_bytes + result_bytes

    alone = sum(getattr(load, name) / rate for name, rate in _ALONE.items())
    alone += feature_values / _WRITTEN_VALUES + random_values / _RANDOM_VALUES
    if ways == 2 or "drop" in (options.self_loops, options.duplicates):
        alone += num_edges / _TIDIED_EDGES
    together = sum(getattr(load, name) / rate for name, rate in _TOGETHER.items())
    together += num_edges / _SORTED_EDGES + (num_edges / _HOT_EDGES if is_hot else 0)
    passing_bytes = kept_bytes + spilled_bytes + dealt_bytes
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
    """Write a time for people, in the unit that says it."""
    if seconds < 90:
        return f"{max(1.0, seconds):.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
