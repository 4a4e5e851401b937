"""Predicted time of prediction layer by layer: the steps of a layer, with the bytes and the core seconds of each.

All functions take arrays, so that many ways to cut a layer into blocks are compared at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.disk.model import DiskModel
from diskhop.hops.tables import TILE_COLUMNS
from diskhop.planning.predict_sizes import TILE_ROW_BYTES, GraphCounts, Sizes, StreamedWork, table_bytes
from diskhop.plans import StepPlan

# Time of one core for an edge of a sum, and for each of its values: measured with blocks larger than the caches.
_EDGE_SECONDS, _VALUE_SECONDS = 2e-9, 0.33e-9
# Throughput of one core in products of matrices, with what moves their rows.
FLOPS_PER_SECOND = 80e9
# Workers share the memory's rate in sums. Threads of one worker wait for one another in each call.
_WORKERS_POWER, _THREADS_POWER = 0.8, 0.5
# Share of its time that a worker waits, for the disk and for calls from Python: 6.5 of 43 seconds on two cores. It is
# lost unless there is another worker to compute meanwhile.
_WAITING_SHARE = 0.15
# Calls from Python: for a part with products, for one with sums alone, and for a stretch of edges.
_PART_SECONDS, _SUMMED_PART_SECONDS, _STRETCH_SECONDS = 0.4e-3, 0.2e-3, 0.1e-3

# Numbers of some ways to cut a layer into blocks, int64 or float64; or one number for all.
Each = NDArray[Any] | float


class StepCost(NamedTuple):
    """Costs of a step, for each way to cut a layer.

    name: name of the step.
    bytes_read, bytes_written: disk traffic.
    filled_bytes: bytes of blocks that are read before the cores begin.
    core_seconds: time of all cores together, while the disk works.
    """

    name: str
    bytes_read: Each
    bytes_written: Each
    filled_bytes: Each
    core_seconds: Each

    def seconds(self, disk: DiskModel) -> NDArray[np.float64]:
        """Return the time of the step."""
        read_rate, write_rate = disk.sequential_read_bytes_per_second, disk.sequential_write_bytes_per_second
        streaming = (self.bytes_read - self.filled_bytes) / read_rate + self.bytes_written / write_rate
        return self.filled_bytes / read_rate + np.maximum(streaming, self.core_seconds)

    def shared_by(self, processes: int) -> StepCost:
        """Return the costs where processes share the rows of the step: each fills blocks of its own."""
        return self._replace(
            bytes_read=self.bytes_read + (processes - 1) * self.filled_bytes,
            filled_bytes=processes * self.filled_bytes,
            core_seconds=self.core_seconds / processes,
        )

    def planned(self, disk: DiskModel) -> StepPlan:
        """Return the step, if there is one way to cut the layer."""
        return StepPlan(
            name=self.name,
            bytes_read=int(np.sum(self.bytes_read)),
            bytes_written=int(np.sum(self.bytes_written)),
            seconds=float(np.sum(self.seconds(disk))),
        )

    @property
    def total_core_seconds(self) -> float:
        """Core seconds, summed over the ways."""
        return float(np.sum(self.core_seconds))


def first_step(work: StreamedWork, sizes: Sizes, threads: int) -> StepCost:
    """Return the step that makes table 0 of the features."""
    graph = work.graph
    num_rows = work.block_rows(0) if work.own_are_features else graph.num_nodes
    read, written = num_rows * graph.feature_row_bytes, table_bytes(num_rows, work.table_tiles(0))
    computing = table_seconds(_row_flops(work, 0), graph, sizes, threads)
    return StepCost("read features", read, written, 0, computing)


def layer_steps(
    work: StreamedWork, number: int, last: NDArray[np.int64], num_others: NDArray[np.int64], sizes: Sizes, threads: int
) -> list[StepCost]:
    """Return the steps of a layer.

    last: tiles of the last block. num_others: blocks of the tiles before it, at least one if there are such tiles.
    """
    shape, graph = work.layers[number], work.graph
    name, lists = f"layer {number + 1}", graph.lists_bytes
    out, own = graph.tile_bytes(work.table_tiles(number + 1)), graph.tile_bytes(shape.own_tiles)
    if number == 0 and work.own_are_features:
        own = graph.num_nodes * graph.feature_row_bytes
    summed_parts = pass_seconds(graph, sizes.summed_rows, sizes)
    steps = []
    if shape.score_tiles:
        scores, norms = graph.tile_bytes(2 * shape.score_tiles), graph.tile_bytes(2 * shape.score_tiles)
        steps.append(StepCost(f"{name}: attention", lists + scores, norms, scores // 2, summed_parts))
        lists += scores + norms
    others = shape.summed_tiles - last
    block_tile_bytes = work.block_rows(number) * TILE_ROW_BYTES
    before, filled = others * block_tile_bytes, last * block_tile_bytes
    sums = others * graph.sums_tile_bytes(shape.sums_lack_rows(sizes.part_rows))
    summing = sums_seconds(graph, num_others, others, sizes.summed_rows, sizes, threads) + num_others * summed_parts
    steps.append(StepCost(f"{name}: first sums", before + num_others * lists, sums, before, summing))
    computing = sums_seconds(graph, 1, last, sizes.part_rows, sizes, threads)
    computing = computing + table_seconds(_row_flops(work, number + 1), graph, sizes, threads)
    steps.append(StepCost(name, filled + lists + sums + own, out, filled, computing))
    return steps


def _row_flops(work: StreamedWork, number: int) -> float:
    """Return the floating-point operations for a row of table `number`, by the layers before and after it."""
    flops = 0.0
    if number > 0 and work.layers[number - 1].aggregates_first:
        flops += work.layers[number - 1].flops
    if number < len(work.layers) and not work.layers[number].aggregates_first:
        flops += work.layers[number].flops
    return flops


def sums_seconds(graph: GraphCounts, num_blocks: Each, tiles: Each, rows: int, sizes: Sizes, threads: int) -> Each:
    """Return the time of the sums of some blocks, of some tiles together, in parts of some rows."""
    one_core = graph.num_edges * (num_blocks * _EDGE_SECONDS + TILE_COLUMNS * tiles * _VALUE_SECONDS)
    return one_core / _busy_cores(graph, rows, sizes.workers, threads, _WORKERS_POWER)


def pass_seconds(graph: GraphCounts, rows: int, sizes: Sizes) -> float:
    """Return the time of the calls of a pass over the lists, in parts of some rows whose sums are written."""
    streaming = -(-graph.num_edges // sizes.stretch_edges) * _STRETCH_SECONDS / sizes.workers
    return streaming + _parts_seconds(graph, rows, sizes, _SUMMED_PART_SECONDS)


def table_seconds(row_flops: float, graph: GraphCounts, sizes: Sizes, threads: int) -> float:
    """Return the time of the products and the calls for a table."""
    one_core = graph.num_nodes * row_flops / FLOPS_PER_SECOND
    products = one_core / _busy_cores(graph, sizes.part_rows, sizes.workers, threads, 1.0)
    return products + _parts_seconds(graph, sizes.part_rows, sizes, _PART_SECONDS)


def _parts_seconds(graph: GraphCounts, rows: int, sizes: Sizes, seconds: float) -> float:
    """Return the time of the calls for all parts of some rows."""
    return -(-graph.num_nodes // rows) * seconds / sizes.workers


def _busy_cores(graph: GraphCounts, rows: int, workers: int, threads: int, workers_power: float) -> float:
    """Return how many cores are busy, on average: workers divide whole parts of some rows."""
    parts = -(-graph.num_nodes // rows)
    longest_share = 1 + (workers - 1) / (2 * parts)
    computing = min(workers, threads)
    waiting_share = _WAITING_SHARE if workers <= threads else 0.0
    cores = computing**workers_power * (threads / computing) ** _THREADS_POWER
    return float(cores * (1 - waiting_share) / longest_share)
