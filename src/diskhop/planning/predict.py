"""Planning of prediction layer by layer: a pure function from a model's shape, counts and a budget to blocks and bytes.

A layer *sums* some columns over the neighbours of every node. A *block* is as many of these columns as memory holds, of
all rows that an edge may need (PP-GNN's propagation, for layers with parameters). Sums of the last block go on to the
layer's products at once; those of earlier ones are written, and read again with the rows' own values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from diskhop.budget import Budget, format_bytes
from diskhop.disk.model import DiskModel
from diskhop.hops.tables import TILE_COLUMNS
from diskhop.planning.passes_plan import PassesPlan, with_costs
from diskhop.planning.predict_choice import Room, choose_sizes
from diskhop.planning.predict_costs import StepCost, first_step, layer_steps
from diskhop.planning.predict_sizes import (
    TILE_ROW_BYTES,
    LayerPlan,
    LayerShape,
    Sizes,
    StreamedWork,
    first_rows_memory,
    products_memory,
    reading_outputs_bytes,
    sums_memory,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedPlan(PassesPlan):
    """How a built-in model predicts for all nodes.

    layers: one per layer.
    fills_first_block: whether the features also fill the first block, which is then not read.
    own_are_features: see StreamedWork.
    """

    layers: tuple[LayerPlan, ...]
    fills_first_block: bool = False
    own_are_features: bool = False

    @property
    def stores_first_block(self) -> bool:
        """Whether table 0 has the first block. If not, it is made of the features again after an interruption."""
        return not (self.fills_first_block and self.own_are_features and self.layers[0].num_blocks > 1)

    @property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """Tiles of each block of every layer."""
        return tuple(layer.blocks for layer in self.layers)

    def __str__(self) -> str:
        passes = sum(layer.num_blocks for layer in self.layers)
        division = f". {self.division}" if self.division else ""
        return (
            f"{len(self.layers)} layers in {passes} passes over the neighbour lists, reading "
            f"{format_bytes(self.bytes_read)} and writing {format_bytes(self.bytes_written)}, up to "
            f"{format_bytes(self.work_bytes)} on disk during the work; about {self.seconds:.1f} s{division}"
        )


def plan_streamed(
    work: StreamedWork,
    *,
    memory_bytes: int,
    threads: int,
    cores: int,
    engine: str,
    disk: DiskModel,
    later: Mapping[str, int] = MappingProxyType({}),
    blocks: Sequence[Sequence[int]] = (),
    processes: int = 1,
) -> StreamedPlan:
    """Choose the fastest sizes that fit into memory, and predict the work. Raises BudgetError.

    memory_bytes, threads: of each process.
    cores: cores of the machine for each process. If the threads take all of them, there may be one more worker than
        threads.
    later: memory by name of what reads the outputs, in bytes.
    blocks: tiles of each layer's blocks, to be kept.
    processes: processes that share the rows of every table.
    """
    room = Room(
        memory_bytes=memory_bytes,
        later_bytes=sum(later.values()),
        threads=threads,
        cores=cores,
        disk=disk,
        kept=tuple(tuple(each) for each in blocks),
    )
    chosen = choose_sizes(work, room)
    sizes = chosen.sizes
    layers = tuple(_layer_plan(work, number, each, sizes) for number, each in enumerate(chosen.blocks))
    phases = _phases(work, layers, sizes)
    filling = {**phases[0], "column block": _first_block_bytes(work, layers[0], sizes)}
    # With attention, a block begins with scores. One of several processes has not all rows that a block needs.
    fills_first_block = sum(filling.values()) <= memory_bytes and work.layers[0].score_tiles == 0 and processes == 1
    if fills_first_block:
        phases[0] = filling
    reserved = max(phases, key=lambda phase: sum(phase.values()))
    reading = {"reading outputs": reading_outputs_bytes(work.wanted_tiles, sizes.part_rows, threads), **later}
    Budget(memory_bytes).require(max(reserved, reading, key=lambda phase: sum(phase.values())))
    costs = [cost.shared_by(processes) for cost in _costs(work, layers, sizes, threads)]
    reasons = tuple(_reason(number, layer, work.layers[number]) for number, layer in enumerate(layers))
    plan = StreamedPlan(
        engine=engine,
        threads=threads,
        memory_bytes=memory_bytes,
        reserved=reserved,
        reasons=reasons,
        layers=layers,
        fills_first_block=fills_first_block,
        own_are_features=work.own_are_features,
        part_rows=sizes.part_rows,
        summed_rows=sizes.summed_rows,
        workers=sizes.workers,
        product_rows=sizes.product_rows,
        stretch_edges=sizes.stretch_edges,
        # Steps with products have one pass, and take no more for it than they are planned to.
        pool_bytes=sum(reserved.values()) - max(phase.get("column block", 0) for phase in phases),
        work_bytes=_work_bytes(work, layers),
        result_bytes=_result_bytes(work),
    )
    plan = with_costs(plan, costs, disk)
    return plan if plan.stores_first_block else _without_first_block(plan)


def _without_first_block(plan: StreamedPlan) -> StreamedPlan:
    """Leave the first block out of the bytes that are moved. The predicted time stays: it chose the sizes."""
    layer = plan.layers[0]
    num_bytes = layer.blocks[0] * layer.block_rows * TILE_ROW_BYTES
    first, second, *others = plan.steps
    first = replace(first, bytes_written=first.bytes_written - num_bytes)
    second = replace(second, bytes_read=second.bytes_read - num_bytes)
    plan = replace(plan, steps=(first, second, *others))
    assert plan.predicted is not None, "of a plan with costs"
    moved = replace(plan.predicted, bytes_read=plan.bytes_read, bytes_written=plan.bytes_written)
    return replace(plan, predicted=moved)


def _layer_plan(work: StreamedWork, number: int, blocks: tuple[int, ...], sizes: Sizes) -> LayerPlan:
    shape = work.layers[number]
    return LayerPlan(
        aggregates_first=shape.aggregates_first,
        blocks=blocks,
        block_rows=work.block_rows(number),
        sums_lack_rows=shape.sums_lack_rows(sizes.part_rows),
    )


def _phases(work: StreamedWork, layers: Sequence[LayerPlan], sizes: Sizes) -> list[dict[str, int]]:
    """Return the memory of each piece of work, by name."""
    phases = [first_rows_memory(work, sizes)]
    for number, layer in enumerate(layers):
        *others, last = layer.blocks
        phases.append(products_memory(work, number, last, sizes))
        if others or work.layers[number].score_tiles:
            phases.append(sums_memory(work, number, max(others, default=0), sizes))
    return phases


def _first_block_bytes(work: StreamedWork, layer: LayerPlan, sizes: Sizes) -> int:
    """Return the memory of the blocks that the first one shares memory with."""
    *others, last = layer.blocks
    memory = sums_memory(work, 0, max(others), sizes) if others else products_memory(work, 0, last, sizes)
    return memory["column block"]


def _costs(work: StreamedWork, layers: Sequence[LayerPlan], sizes: Sizes, threads: int) -> list[StepCost]:
    costs = [first_step(work, sizes, threads)]
    for number, layer in enumerate(layers):
        last, num_others = np.array(layer.blocks[-1:]), np.array([layer.num_blocks - 1])
        costs += layer_steps(work, number, last, num_others, sizes, threads)
    return [cost for cost in costs if np.any(cost.bytes_read)]  # a layer of one block has no other sums


def _work_bytes(work: StreamedWork, layers: Sequence[LayerPlan]) -> int:
    """Return the largest disk space: a layer's table, its sums and the next table exist together, with kept ones."""
    most = 0
    for number, layer in enumerate(layers):
        tables = {number, number + 1, *(each for each in work.kept if each < number)}
        tiles = sum(map(work.table_tiles, tables)) + 2 * work.layers[number].score_tiles
        most = max(most, tiles + sum(layer.blocks[:-1]))
    return work.graph.tile_bytes(most)


def _result_bytes(work: StreamedWork) -> int:
    """Return the disk space of the outputs, and of tables that are kept for other uses."""
    return work.graph.tile_bytes(sum(map(work.table_tiles, {len(work.layers), *work.kept})))


def _reason(number: int, layer: LayerPlan, shape: LayerShape) -> str:
    order = "aggregates first" if layer.aggregates_first else "transforms first"
    columns = TILE_COLUMNS * shape.summed_tiles
    if layer.num_blocks == 1:
        how = f"all {columns} summed columns in memory, sums go on to the products"
    else:
        widest = TILE_COLUMNS * max(layer.blocks)
        how = f"{layer.num_blocks} passes of up to {widest} of {columns} summed columns, the last one with the products"
    return f"Layer {number + 1}: {order} (fewer columns to sum); {how}"
