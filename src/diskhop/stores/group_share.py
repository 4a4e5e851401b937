"""Dividing memory between the node types of a graph, and predicting what their stores cost together.

Each type gets the smallest memory that its store runs in, and a part of the rest in proportion to the bytes that a
batch accesses, but no more than its whole table takes. Nothing here knows a store: a type's own store divides its part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from diskhop._native import File
from diskhop.batches.short_trace import ShortTrace
from diskhop.batches.sizes import BatchSizes
from diskhop.budget import Budget
from diskhop.errors import BudgetError
from diskhop.plans import Prediction, StoreShare
from diskhop.policies.static import most_accessed
from diskhop.protocols import NodeIds, Table, TableGroup, TablePart
from diskhop.stores.costs import Scenario, overlap
from diskhop.stores.in_flight import MOST_IN_FLIGHT
from diskhop.stores.kind import StoreKind
from diskhop.stores.room import STAGING_BYTES, StoreRoom, StoreWishes
from diskhop.stores.scanning import BYTES_PER_ROW_IN_FLIGHT
from diskhop.system.memory import buffer_bytes

# Cached rows take a little more than their bytes: places, and when each was last accessed.
_ROW_OVERHEAD = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class PartShare:
    """Share of one type's store, and bytes of the buffers that its reads land in."""

    share: StoreShare
    staging_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShare(StoreShare):
    """Share of a group: its totals, and the parts by node type."""

    parts: Mapping[str, PartShare] = field(default_factory=dict)


class _PartRoom(StoreRoom):
    """Memory of one type. The first of them has the blocks of the batches, too."""

    def __init__(
        self,
        budget_bytes: int,
        room: StoreRoom,
        part: TablePart,
        wishes: StoreWishes,
        shares: frozenset[str],
        *,
        is_first: bool,
    ) -> None:
        sizes = sizes_of(room.sizes, part, is_first=is_first)
        row_bytes = part.table.row_bytes + part.made_bytes
        super().__init__(
            Budget(budget_bytes * room.num_processes, room.num_processes),
            sizes,
            wishes,
            [],
            rows_bytes=buffer_bytes(sizes.num_nodes * row_bytes),
            added_bytes=room.block_bytes - buffer_bytes(sizes.block_bytes) if is_first else 0,
            reserved={},
            sampling_threads=room.sampling_threads,
            take_lists=lambda _: None,
            shared=shares,
        )


def sizes_of(sizes: BatchSizes, part: TablePart, *, is_first: bool = False) -> BatchSizes:
    """Return the sizes of batches as one type has them. is_first: with their nodes and edges."""
    first, stop = np.searchsorted(sizes.node_ids, [part.first_row, part.first_row + part.table.num_rows])
    share = (stop - first) / max(1, len(sizes.node_ids))
    return replace(
        sizes,
        block_bytes=sizes.block_bytes if is_first else 0,
        record_bytes=sizes.record_bytes if is_first else 0,
        num_nodes=max(1, int(np.ceil(sizes.num_nodes * share))),
        num_rows=max(1, int(np.ceil(sizes.num_rows * share))),
        node_ids=sizes.node_ids[first:stop] - part.first_row,
    )


def divide_group(kind: StoreKind, table: TableGroup, room: StoreRoom, wishes: StoreWishes) -> GroupShare:
    """Divide memory between types, then within each by its store. Raises BudgetError as a store does."""
    weights = accessed_bytes(room.sizes, table)
    wanted = {part.name: _wishes_of(part, wishes, weights) for part in table.parts}
    first = max(weights, key=lambda name: weights[name])

    def make_room(part: TablePart, budget_bytes: int) -> StoreRoom:
        return _PartRoom(budget_bytes, room, part, wanted[part.name], kind.shares, is_first=part.name == first)

    smallest = {
        part.name: _smallest_bytes(kind, part, make_room, wanted[part.name], room.num_processes) for part in table.parts
    }
    room.require_parts(sum(smallest.values()))
    shared_by = room.num_processes if kind.shares else 1
    most = {part.name: _most_bytes(part, room.sizes, smallest[part.name], shared_by) for part in table.parts}
    slices = split_bytes(room.left_bytes, smallest, most, weights)
    parts, rooms = {}, []
    for part in table.parts:
        own = make_room(part, slices[part.name])
        share = kind.divide(part.table, own, wanted[part.name])
        parts[part.name] = PartShare(share=share, staging_bytes=own.reserved["staging"])
        room.reasons += [f"{part.name}: {reason}" for reason in own.reasons]
        room.shared |= {f"{label} ({part.name})" for label in own.shared}
        rooms.append(own)
    room.adopt(rooms)
    shares = [part.share for part in parts.values()]
    reserves = {
        f"{label} ({name})": num_bytes
        for name, part in parts.items()
        for label, num_bytes in part.share.reserves.items()
    }
    room.reserved.update(reserves)
    return GroupShare(
        reserves=reserves,
        cache_rows=sum(share.cache_rows for share in shares),
        buffer_rows=sum(share.buffer_rows for share in shares),
        partition_bytes=max(share.partition_bytes for share in shares),
        extractors=min(share.extractors for share in shares),
        most_extracting=min(share.most_extracting for share in shares),
        superbatch=min(share.superbatch for share in shares),
        first_superbatch=min(share.first_superbatch for share in shares),
        scratch=next((share.scratch for share in shares if share.scratch), ""),
        parts=parts,
    )


def split_bytes(
    left_bytes: int, smallest: Mapping[str, int], most: Mapping[str, int], weights: Mapping[str, float]
) -> dict[str, int]:
    """Return bytes for each name: the smallest, and a part of left_bytes by weight until its most is reached."""
    slices = dict(smallest)
    growing = {name for name in slices if weights[name] > 0 and most[name] > slices[name]}
    while growing and left_bytes >= len(growing):
        total = sum(weights[name] for name in growing)
        step = {
            name: min(int(left_bytes * weights[name] / total), most[name] - slices[name]) for name in sorted(growing)
        }
        if not any(step.values()):
            break
        for name, num_bytes in step.items():
            slices[name] += num_bytes
            left_bytes -= num_bytes
        growing = {name for name in growing if most[name] > slices[name]}
    return slices


def accessed_bytes(sizes: BatchSizes, table: TableGroup) -> dict[str, float]:
    """Return the bytes that a batch accesses of each type, at least 1."""
    return {part.name: float(len(sizes_of(sizes, part).node_ids) * part.table.row_bytes) or 1.0 for part in table.parts}


def without_cached_rows(share: StoreShare) -> StoreShare:
    """Return a share whose stores keep no rows in memory."""
    if not isinstance(share, GroupShare):
        return replace(share, cache_rows=0)
    parts = {name: replace(each, share=replace(each.share, cache_rows=0)) for name, each in share.parts.items()}
    return replace(share, cache_rows=0, parts=parts)


def _most_bytes(part: TablePart, sizes: BatchSizes, smallest_bytes: int, shared_by: int) -> int:
    """Bytes beyond which more memory gains nothing: the whole table is cached and many batches are in flight.

    shared_by: processes that have the cached rows in one copy.
    """
    table_bytes = int(part.table.num_rows * part.table.row_bytes * _ROW_OVERHEAD) // shared_by
    batch_bytes = sizes_of(sizes, part).num_nodes * part.table.row_bytes + sizes.block_bytes
    return smallest_bytes + table_bytes + 2 * MOST_IN_FLIGHT * batch_bytes + STAGING_BYTES


def _wishes_of(part: TablePart, wishes: StoreWishes, weights: Mapping[str, float]) -> StoreWishes:
    """Return a type's part of --cache and --disk."""
    share = weights[part.name] / sum(weights.values())
    return replace(
        wishes,
        cache_bytes=None if wishes.cache_bytes is None else int(wishes.cache_bytes * share),
        disk_bytes=None if wishes.disk_bytes is None else int(wishes.disk_bytes * share),
        scratch=wishes.scratch,
        prepared=None,
        pins_first_rows=False,
    )


def _smallest_bytes(
    kind: StoreKind,
    part: TablePart,
    make_room: Callable[[TablePart, int], StoreRoom],
    wishes: StoreWishes,
    num_processes: int,
) -> int:
    """Return the fewest bytes of its part of the budget that each process gives."""
    try:
        kind.divide(part.table, make_room(part, 1), wishes)
    except BudgetError as error:
        return -(-(error.smallest_bytes or 0) // num_processes)
    return 0


def pick_pinned(counts: NDArray[Any], table: Table, share: StoreShare) -> NodeIds:
    """Return the most accessed rows that a store has memory for, ascending; of a group, those of every type."""
    if not isinstance(share, GroupShare) or not isinstance(table, TableGroup):
        return most_accessed(counts, share.cache_rows)
    picked = []
    for part in table.parts:
        own = counts[part.first_row :][: part.table.num_rows]
        picked.append(part.first_row + most_accessed(own, share.parts[part.name].share.cache_rows))
    return np.concatenate(picked)


def simulate_group(kind: StoreKind, scenario: Scenario) -> Prediction:
    """Predict an epoch of all types: their reads and their work add up; the model and sampling count once."""
    share, table = scenario.plan.share, scenario.table
    assert isinstance(share, GroupShare)
    assert isinstance(table, TableGroup)
    num_rows = {part.name: sum(map(len, _ids_of(scenario.trace, part))) for part in table.parts}
    largest = max(table.parts, key=lambda part: num_rows[part.name] * part.table.row_bytes)
    used = [part for part in table.parts if part is largest or num_rows[part.name]]
    ids = {part.name: _ids_of(scenario.trace, part) for part in used}
    in_flight = _in_flight_of(scenario, used, ids, largest)
    predicted = [
        kind.simulate(
            _scenario_of(scenario, share, part, ids[part.name], in_flight[part.name], is_first=part is largest)
        )
        for part in used
    ]
    return _together(predicted, [num_rows[part.name] for part in used])


def _ids_of(trace: ShortTrace, part: TablePart) -> list[Any]:
    bounds = [part.first_row, part.first_row + part.table.num_rows]
    found = []
    for ids in trace.node_ids:
        first, stop = np.searchsorted(ids, bounds)
        found.append(ids[first:stop] - ids.dtype.type(part.first_row))
    return found


def _in_flight_of(
    scenario: Scenario, parts: Sequence[TablePart], ids: Mapping[str, list[Any]], first: TablePart
) -> dict[str, int]:
    """Divide the memory of batches in flight, each of which has the rows of all types. first: has the blocks, too."""
    count = len(scenario.trace.node_ids)
    weights = {}
    for part in parts:
        num_rows = sum(map(len, ids[part.name])) / count
        weights[part.name] = num_rows * (part.table.row_bytes + BYTES_PER_ROW_IN_FLIGHT)
    weights[first.name] += buffer_bytes(int(scenario.trace.block_bytes))
    total = max(1.0, sum(weights.values()))
    return {name: int(scenario.plan.bytes_in_flight * weight / total) for name, weight in weights.items()}


def _scenario_of(
    scenario: Scenario, share: GroupShare, part: TablePart, ids: list[Any], bytes_in_flight: int, *, is_first: bool
) -> Scenario:
    own = share.parts[part.name]
    # All types look ahead together.
    own_share = replace(own.share, superbatch=share.superbatch, first_superbatch=share.first_superbatch)
    trace, machine = replace(scenario.trace, node_ids=tuple(ids)), scenario.machine
    copy_seconds = machine.copy_seconds * part.table.row_bytes / scenario.table.row_bytes
    machine = replace(machine, copy_seconds=copy_seconds)
    if not is_first:
        trace = replace(trace, block_bytes=0.0, record_bytes=0.0, sample_seconds=0.0)
        machine = replace(machine, step_seconds=0.0)
    pinned = None if scenario.pinned is None else np.sort(part.find(scenario.pinned)[1])
    return replace(
        scenario,
        trace=trace,
        table=part.table,
        table_alignment=File(str(part.table.path), "read").offset_alignment,
        plan=replace(scenario.plan, share=own_share, staging_bytes=own.staging_bytes, bytes_in_flight=bytes_in_flight),
        machine=machine,
        pinned=pinned,
        counting_bytes=scenario.counting_bytes if is_first else 0,
        lists=scenario.lists if is_first else None,
    )


def _together(parts: Sequence[Prediction], num_rows: Sequence[int]) -> Prediction:
    def total(name: str) -> Any:
        return sum(getattr(part, name) for part in parts)

    io_seconds, cores_seconds = total("io_seconds"), total("cores_seconds")
    # What overlaps with nothing in the stores alone: the first batches, and filling caches.
    lead = sum(part.epoch_seconds - overlap(part.io_seconds, part.cores_seconds) for part in parts)
    rows = max(1, sum(num_rows))
    hits = sum(part.hit_rate * count for part, count in zip(parts, num_rows, strict=True))
    return Prediction(
        epoch_seconds=overlap(io_seconds, cores_seconds) + max(0.0, lead),
        io_seconds=io_seconds,
        cores_seconds=cores_seconds,
        compute_seconds=total("compute_seconds"),
        start_seconds=total("start_seconds"),
        open_seconds=total("open_seconds"),
        preparation_seconds=total("preparation_seconds"),
        hit_rate=hits / rows,
        reads=total("reads"),
        bytes_read=total("bytes_read"),
        bytes_written=total("bytes_written"),
        disk_bytes=total("disk_bytes"),
    )


def grouped(kind: StoreKind, open_group: Callable[..., Any]) -> StoreKind:
    """Return a store of one table as one of a group of tables. open_group: opens it."""

    def refuses(table: Table, wishes: StoreWishes) -> str:
        parts = cast(TableGroup, table).parts
        weights = {part.name: float(part.table.num_rows * part.table.row_bytes) or 1.0 for part in parts}
        refusals = (kind.refuses(part.table, _wishes_of(part, wishes, weights)) for part in parts)
        return next((reason for reason in refusals if reason), "")

    return replace(
        kind,
        open=partial(open_group, kind),
        divide=cast(Any, partial(divide_group, kind)),
        simulate=partial(simulate_group, kind),
        refuses=refuses,
        find_prepared=None,
    )
