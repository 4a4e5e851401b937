"""Partitions, buffer and order of an embedding run, computed from the budget without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from diskhop.budget import Budget, format_bytes
from diskhop.config.embed import EmbedConfig
from diskhop.config.options import AUTO, require_known
from diskhop.embedding.partitions.buffer import slots_bytes
from diskhop.embedding.partitions.edges import edges_bytes, phase_bytes
from diskhop.embedding.partitions.layout import NodePermutation, PartitionLayout
from diskhop.embedding.scoring.scores import SCORES
from diskhop.embedding.step.gradients import StepOptions
from diskhop.embedding.step.known_edges import known_bytes
from diskhop.embedding.step.step import step_bytes
from diskhop.errors import BudgetError
from diskhop.planning.embeddings.size import EmbedSize
from diskhop.plans import EmbedPlan
from diskhop.policies.orderings import ORDERS, State, buckets_by_state, prefetchable_share

# Warm start: the previous place of each node, and two words of its name's hash in either run with their order.
_WARM_START_BYTES_PER_NODE = 56
# Fewer partitions need fewer swaps; for these numbers short orders are known.
NUMBERS_OF_PARTITIONS = (1, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)


def layout_of(config: EmbedConfig, num_nodes: int) -> PartitionLayout:
    """Return the layout of a configuration's partitions. Raises ConfigError for more partitions than nodes."""
    return PartitionLayout(num_nodes, config.partitions, config.dim, 1 if config.adagrad == "row" else config.dim)


def permutation_of(config: EmbedConfig, num_nodes: int, number: int = 0) -> NodePermutation:
    """Return the permutation of nodes to places after `number` repartitions."""
    return NodePermutation(num_nodes, config.assignment, config.seed, number)


def choose_partitions(config: EmbedConfig, size: EmbedSize) -> EmbedConfig:
    """Choose the fewest partitions that fit the budget, one prefetched partition included."""
    for number in NUMBERS_OF_PARTITIONS:
        if number <= size.num_nodes:
            tried = replace(config, partitions=number, buffer=min(config.buffer, max(2, number)))
            if _fits(tried, size, _Room(_most_slots(tried), True)):
                return tried
    return tried


class _Room(NamedTuple):
    """Partitions in memory at once, and whether edges are read from disk."""

    slots: int
    edges_on_disk: bool


class ChosenOrder(NamedTuple):
    """Order of partitions.

    name: of the order.
    states: partitions in memory, one tuple per state.
    most_buckets: maximum number of buckets trained together.
    """

    name: str
    states: list[State]
    most_buckets: int


def choose_order(config: EmbedConfig) -> ChosenOrder:
    """Choose the order with the fewest swaps. Raises ConfigError for an order that does not support the buffer."""
    return _choose_order(config.partition_order, config.partitions, config.buffer)


@cache  # some orders are searched, which takes seconds
def _choose_order(name: str, num_partitions: int, capacity: int) -> ChosenOrder:
    if num_partitions <= capacity:
        return ChosenOrder("all at once", [tuple(range(num_partitions))], num_partitions**2)
    require_known("partition order", name, (AUTO, *ORDERS))
    names = [name]
    if name == AUTO:
        names = ["searched", "legend", "beta"] if capacity == 3 else ["searched", "beta"]
    orders = {each: ORDERS[each](num_partitions, capacity) for each in names}
    # Fewer states move fewer partitions; among equals, more of the moves overlap with training.
    best = min(orders, key=lambda each: (len(orders[each]), -prefetchable_share(orders[each])))
    phases = [phase for buckets in buckets_by_state(orders[best]) for phase in (buckets.leaving, buckets.staying)]
    return ChosenOrder(best, orders[best], max(map(len, phases)))


def plan_embedding(config: EmbedConfig, size: EmbedSize, budget: Budget) -> EmbedPlan:
    """Plan a complete configuration. Raises BudgetError with the number of partitions that would fit."""
    layout = layout_of(config, size.num_nodes)
    order, states, _ = choose_order(config)
    most, fewest = _most_slots(config), min(config.partitions, config.buffer)
    # Edges are read once per epoch, sequentially: that costs less than waiting for partitions.
    rooms = [_Room(slots, on_disk) for slots in dict.fromkeys((most, fewest)) for on_disk in (False, True)]
    room = next((room for room in rooms if _fits(config, size, room)), rooms[-1])
    wanted = _wanted(config, size, room)
    _require(budget, wanted, config, size)
    reasons = [
        f"{config.partitions} partition{'s' if config.partitions > 1 else ''} of "
        f"{format_bytes(layout.partition_bytes)}, {room.slots} in memory"
    ]
    if room.edges_on_disk:
        all_bytes = edges_bytes(size.num_edges, size.num_relations > 0)
        reasons.append(f"edges do not fit in memory: {format_bytes(all_bytes)} read from disk in every epoch")
    if config.partitions > config.buffer:
        share = prefetchable_share(states)
        reasons.append(
            f"order {order}: {len(states)} states, {share:.0%} of the swaps overlap with training"
            if config.overlap
            else f"order {order}: {len(states)} states; partitions move between states (--no-overlap)"
        )
        if config.is_repartitioned:
            times = "once" if config.repartitions == 1 else f"{config.repartitions} times"
            reasons.append(f"re-partitioning {times} per epoch (disk traffic x{config.passes})")
        if room.slots == fewest and config.overlap:
            enough = sum(_wanted(config, size, _Room(most, True)).values())
            reasons.append(
                f"no memory for a prefetched partition: training waits for each read; --memory "
                f"{-(-enough // 1_000_000)}MB would overlap them"
            )
    return EmbedPlan(
        num_partitions=config.partitions,
        partition_bytes=layout.partition_bytes,
        buffer=min(config.buffer, config.partitions),
        num_slots=room.slots,
        partition_order=order,
        states=len(states),
        loads=sum(len(set(after) - set(before)) for before, after in pairwise(states)),
        prefetchable=prefetchable_share(states),
        overlap=config.overlap,
        edges_on_disk=room.edges_on_disk,
        engine=config.engine,
        threads=config.threads,
        memory_bytes=config.memory_bytes,
        reserved=wanted,
        reasons=tuple(reasons),
    )


def _most_slots(config: EmbedConfig) -> int:
    is_swapped = config.partitions > config.buffer
    return config.buffer + (1 if config.overlap else 0) if is_swapped else config.partitions


def _fits(config: EmbedConfig, size: EmbedSize, room: _Room) -> bool:
    return sum(_wanted(config, size, room).values()) <= config.memory_bytes


def _wanted(config: EmbedConfig, size: EmbedSize, room: _Room) -> Mapping[str, int]:
    layout = layout_of(config, size.num_nodes)
    score = SCORES[config.model]
    relation_dim = score.relation_dim(config.dim)
    num_rows = size.num_relations * (2 if config.reciprocal else 1) if score.uses_relations else 0
    return {
        "partitions": slots_bytes(layout, room.slots),
        "edges": 0 if room.edges_on_disk else edges_bytes(size.num_edges, size.num_relations > 0),
        "warm start": _WARM_START_BYTES_PER_NODE * size.num_nodes if config.warm_start else 0,
        "known edges": known_bytes(size.num_edges) if config.mask_known else 0,
        "relations": 4 * num_rows * (relation_dim + (1 if config.adagrad == "row" else relation_dim)),
        "phase": max(phase_bytes(_most_in_phase(config, size.num_edges)), size.block_bytes),
        "batch": step_bytes(StepOptions(**config.step_options()), config.dim, relation_dim, config.threads),
        "measuring": size.measure_bytes if config.evaluate else 0,
    }


def _most_in_phase(config: EmbedConfig, num_edges: int) -> int:
    """Estimate the most edges trained in one phase, with a quarter of headroom for uneven buckets."""
    if config.partitions <= config.buffer:
        return num_edges
    return -(-num_edges * choose_order(config).most_buckets * 5 // (4 * config.partitions**2))


def _require(budget: Budget, wanted: Mapping[str, int], config: EmbedConfig, size: EmbedSize) -> None:
    try:
        budget.require(wanted)
    except BudgetError as error:
        better = choose_partitions(config, size)
        fits = _fits(better, size, _Room(_most_slots(better), True))
        hint = f"; or use --partitions {better.partitions}, which fits" if fits else ""
        raise BudgetError(f"{error}{hint}", error.smallest_bytes) from None
