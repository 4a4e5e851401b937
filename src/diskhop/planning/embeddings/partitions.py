"""Partitions, buffer and order of an embedding run, computed from the budget without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from diskhop.budget import Budget, format_bytes
from diskhop.config.embed import MOST_PARTITIONS, EmbedConfig
from diskhop.config.options import AUTO, require_known
from diskhop.embedding.device.slots import passage_bytes
from diskhop.embedding.partitions.edges import edges_bytes, phase_bytes
from diskhop.embedding.partitions.layout import NodePermutation, PartitionLayout
from diskhop.embedding.partitions.slots import slots_bytes
from diskhop.embedding.scoring.scores import SCORES
from diskhop.embedding.step.gradients import StepOptions
from diskhop.embedding.step.known_edges import known_bytes
from diskhop.embedding.step.step import step_bytes
from diskhop.errors import BudgetError, ConfigError
from diskhop.pipeline.transfer import RING_BYTES
from diskhop.planning.embeddings.on_device import DeviceParts, device_parts, relations_bytes
from diskhop.planning.embeddings.size import EmbedSize
from diskhop.planning.options import describe_division
from diskhop.plans import EmbedPlan
from diskhop.policies.orderings import ORDERS
from diskhop.policies.rounds import require_partitions, schedule_ranks
from diskhop.policies.schedule import Schedule, buckets_of_ranks, prefetchable_share, staying_share
from diskhop.runtime.ranks import ONE, Ranks

# Warm start: the previous place of each node, and two words of its name's hash in either run with their order.
_WARM_START_BYTES_PER_NODE = 56
# Fewer partitions need fewer swaps; for these numbers short orders are known.
_NUMBERS_OF_PARTITIONS = (1, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
# Of each rank, which has twice as many groups.
_PARTITIONS_PER_GROUP = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)


def layout_of(config: EmbedConfig, num_nodes: int) -> PartitionLayout:
    """Return the layout of a configuration's partitions. Raises ConfigError for more partitions than nodes."""
    return PartitionLayout(num_nodes, config.partitions, config.dim, 1 if config.adagrad == "row" else config.dim)


def permutation_of(config: EmbedConfig, num_nodes: int, number: int = 0) -> NodePermutation:
    """Return the permutation of nodes to places after `number` repartitions."""
    return NodePermutation(num_nodes, config.assignment, config.seed, number)


def config_of_rank(config: EmbedConfig, ranks: Ranks) -> EmbedConfig:
    """Return the configuration of one of the ranks on this machine: its memory, threads and buffer."""
    if ranks.count == 1:
        return config
    return replace(
        config,
        memory_bytes=config.memory_bytes // ranks.local_count,
        threads=max(1, config.threads // ranks.local_count),
        buffer=min(config.buffer, max(2, config.partitions // ranks.count)),
    )


def numbers_of_partitions(num_nodes: int, ranks: Ranks = ONE) -> Sequence[int]:
    """Return the numbers of partitions to choose from, the fewest first, without empty partitions.

    Raises ConfigError for more ranks than nodes have partitions for.
    """
    numbers: Sequence[int] = _NUMBERS_OF_PARTITIONS
    if ranks.count > 1:
        groups = 2 * ranks.count
        if groups > num_nodes:
            raise ConfigError(
                f"{ranks.count} processes need at least {groups} partitions, got {num_nodes} nodes; use fewer processes"
            )
        numbers = [groups * each for each in _PARTITIONS_PER_GROUP if each == 1 or groups * each <= MOST_PARTITIONS]
    return [number for number in numbers if number <= num_nodes or number == numbers[0]]


def choose_partitions(config: EmbedConfig, size: EmbedSize, ranks: Ranks = ONE) -> EmbedConfig:
    """Choose the fewest partitions that fit the budget, one prefetched partition included. config: of a rank."""
    for number in numbers_of_partitions(size.num_nodes, ranks):
        tried = replace(config, partitions=number, buffer=min(config.buffer, max(2, number // ranks.count)))
        if _fits(tried, size, ranks, _Room(_most_slots(tried, ranks), True)):
            return tried
    return tried


class _Room(NamedTuple):
    """Partitions in memory at once, and whether edges are read from disk."""

    slots: int
    edges_on_disk: bool


class ChosenOrder(NamedTuple):
    """Order of partitions.

    name: of the order.
    schedule: of a pass, for all ranks.
    most_buckets: maximum number of buckets trained together.
    """

    name: str
    schedule: Schedule
    most_buckets: int


def choose_order(config: EmbedConfig, ranks: Ranks = ONE) -> ChosenOrder:
    """Choose the order with the fewest swaps. Raises ConfigError for an order that does not support the buffer."""
    require_partitions(config.partitions, ranks.count)
    return _choose_order(config.partition_order, config.partitions, config.buffer, ranks.count)


@cache  # some orders are searched, which takes seconds
def _choose_order(name: str, num_partitions: int, capacity: int, num_ranks: int) -> ChosenOrder:
    num_owned = num_partitions // num_ranks
    if num_owned <= capacity:
        orders = {"all at once": [tuple(range(num_owned))]}
    else:
        require_known("partition order", name, (AUTO, *ORDERS))
        names = [name]
        if name == AUTO:
            names = ["searched", "legend", "beta"] if capacity == 3 else ["searched", "beta"]
        orders = {each: ORDERS[each](num_owned, capacity) for each in names}
    schedules = {
        each: Schedule.of_one(states) if num_ranks == 1 else schedule_ranks(num_partitions, num_ranks, capacity, states)
        for each, states in orders.items()
    }
    # Fewer states move fewer partitions; among equals, more of the moves overlap with training.
    best = min(schedules, key=lambda each: (schedules[each].num_states, -prefetchable_share(schedules[each])))
    by_state = [buckets for by_rank in buckets_of_ranks(schedules[best]) for buckets in by_rank]
    return ChosenOrder(
        best, schedules[best], max(len(phase) for each in by_state for phase in (each.leaving, each.staying))
    )


def plan_embedding(config: EmbedConfig, size: EmbedSize, budget: Budget, ranks: Ranks = ONE) -> EmbedPlan:
    """Plan a complete configuration. Raises BudgetError with the number of partitions that would fit.

    config: of a rank; see config_of_rank().
    budget: of this machine, shared by its ranks.
    """
    layout = layout_of(config, size.num_nodes)
    order, schedule, _ = choose_order(config, ranks)
    most, fewest = _most_slots(config, ranks), min(config.partitions // ranks.count, config.buffer)
    # Edges are read once per epoch, sequentially: that costs less than waiting for partitions. Ranks read one copy.
    on_disks = (False, True) if ranks.count == 1 else (True,)
    rooms = [_Room(slots, on_disk) for slots in dict.fromkeys((most, fewest)) for on_disk in on_disks]
    room = next((room for room in rooms if _fits(config, size, ranks, room)), rooms[-1])
    wanted = _wanted(config, size, ranks, room)
    _require(budget, wanted, config, size, ranks)
    on_device = _on_device(config, size, ranks, room) if config.is_on_device else None
    if on_device is not None:
        on_device.require(config, _better(config, size, ranks))
    reasons = [
        f"{config.partitions} partition{'s' if config.partitions > 1 else ''} of "
        f"{format_bytes(layout.partition_bytes)}, {room.slots} {'on the device' if on_device else 'in memory'}"
    ]
    if on_device is not None:
        reasons.append(on_device.describe(config))
    if ranks.count > 1:
        reasons.append(
            f"{ranks.count} processes train {config.partitions // ranks.count} partitions each in "
            f"{len(schedule.rounds)} rounds"
        )
        reasons.append(describe_division(wanted, (), budget.num_processes))
    elif room.edges_on_disk:
        all_bytes = edges_bytes(size.num_edges, size.num_relations > 0)
        reasons.append(f"edges do not fit in memory: {format_bytes(all_bytes)} read from disk in every epoch")
    if config.partitions > config.buffer:
        share, num_states = prefetchable_share(schedule), schedule.num_states
        reasons.append(
            f"order {order}: {num_states} states, {share:.0%} of the swaps overlap with training"
            if config.overlap
            else f"order {order}: {num_states} states; partitions move between states (--no-overlap)"
        )
        if config.is_repartitioned:
            times = "once" if config.repartitions == 1 else f"{config.repartitions} times"
            reasons.append(f"re-partitioning {times} per epoch (disk traffic x{config.passes})")
        if room.slots == fewest < most and on_device is None:
            enough = budget.num_processes * sum(_wanted(config, size, ranks, _Room(most, True)).values())
            reasons.append(
                f"no memory for a prefetched partition: training waits for each read; --memory "
                f"{-(-enough // 1_000_000)}MB would overlap them, and so would --prefetch-slot leaving"
            )
    is_overlapped = config.overlap and (config.reuses_slots or room.slots > fewest)
    return EmbedPlan(
        num_partitions=config.partitions,
        partition_bytes=layout.partition_bytes,
        buffer=fewest,
        num_slots=room.slots,
        partition_order=order,
        states=schedule.num_states,
        loads=schedule.num_loads,
        prefetchable=prefetchable_share(schedule),
        overlap=is_overlapped,
        trained_meanwhile=staying_share(schedule) if config.reuses_slots else 1.0,
        edges_on_disk=room.edges_on_disk,
        engine=config.engine,
        threads=config.threads,
        memory_bytes=budget.total_bytes,
        num_processes=budget.num_processes,
        reserved=wanted,
        reasons=tuple(reasons),
    )


def _most_slots(config: EmbedConfig, ranks: Ranks) -> int:
    num_owned = config.partitions // ranks.count
    has_spare = config.overlap and not config.reuses_slots
    return config.buffer + (1 if has_spare else 0) if num_owned > config.buffer else num_owned


def _fits(config: EmbedConfig, size: EmbedSize, ranks: Ranks, room: _Room) -> bool:
    if config.is_on_device and sum(_on_device(config, size, ranks, room)) > config.device_memory_bytes:
        return False
    return sum(_wanted(config, size, ranks, room).values()) <= config.memory_bytes


def _on_device(config: EmbedConfig, size: EmbedSize, ranks: Ranks, room: _Room) -> DeviceParts:
    most_in_phase = _most_in_phase(config, size.num_edges, ranks)
    return device_parts(config, size, layout_of(config, size.num_nodes), room.slots, most_in_phase)


def _wanted(config: EmbedConfig, size: EmbedSize, ranks: Ranks, room: _Room) -> Mapping[str, int]:
    layout = layout_of(config, size.num_nodes)
    if config.is_on_device:
        trained = {"partitions": passage_bytes(layout), "transfer buffers": RING_BYTES}
    else:
        relation_dim = SCORES[config.model].relation_dim(config.dim)
        batch_bytes = step_bytes(StepOptions(**config.step_options()), config.dim, relation_dim, config.threads)
        trained = {"partitions": slots_bytes(layout, room.slots), "batch": batch_bytes}
    return {
        **trained,
        "edges": 0 if room.edges_on_disk else edges_bytes(size.num_edges, size.num_relations > 0),
        "warm start": _WARM_START_BYTES_PER_NODE * size.num_nodes if config.warm_start else 0,
        "known edges": known_bytes(size.num_edges) if config.mask_known else 0,
        # Ranks also keep what the relations were, and get those of all ranks to combine them.
        "relations": relations_bytes(config, size) * (1 if ranks.count == 1 else 2 + ranks.count),
        "phase": max(phase_bytes(_most_in_phase(config, size.num_edges, ranks)), size.block_bytes),
        "measuring": size.measure_bytes if config.evaluate else 0,
    }


def _most_in_phase(config: EmbedConfig, num_edges: int, ranks: Ranks) -> int:
    """Estimate the most edges trained in one phase, with a quarter of headroom for uneven buckets."""
    if config.partitions <= config.buffer:
        return num_edges
    return -(-num_edges * choose_order(config, ranks).most_buckets * 5 // (4 * config.partitions**2))


def _require(budget: Budget, wanted: Mapping[str, int], config: EmbedConfig, size: EmbedSize, ranks: Ranks) -> None:
    try:
        budget.require(wanted)
    except BudgetError as error:
        raise BudgetError(f"{error}{_better(config, size, ranks)}", error.smallest_bytes) from None


def _better(config: EmbedConfig, size: EmbedSize, ranks: Ranks) -> str:
    """Return the end of a refusal that names a number of partitions that fits, if any does."""
    better = choose_partitions(config, size, ranks)
    fits = _fits(better, size, ranks, _Room(_most_slots(better, ranks), True))
    return f"; or use --partitions {better.partitions}, which fits" if fits else ""
