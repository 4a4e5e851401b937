"""Dividing memory between a store, the batches in flight, and everything else in a plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from diskhop.batches.sizes import BatchSizes
from diskhop.budget import Budget, format_bytes
from diskhop.derived.scratch import free_bytes
from diskhop.errors import ConfigError
from diskhop.plans import StoreShare
from diskhop.policies.superbatches import SUPERBATCHES_ON_DISK
from diskhop.protocols import Table
from diskhop.stores.in_flight import FEW_IN_FLIGHT, MOST_IN_FLIGHT, BatchesInFlight, together
from diskhop.stores.resources import PreparedBatches
from diskhop.stores.scanning import BYTES_PER_ROW_IN_FLIGHT
from diskhop.system.memory import buffer_bytes

# Staging works in eighths: enough reads in flight, small enough to stay in the CPU's caches when rows are copied from
# there (32 MiB is a quarter slower; see docs/log.md).
STAGING_BYTES = 8 << 20
SMALLEST_STAGING_BYTES = 4 << 20
# Batches in flight of each process: one is read while another waits for the model.
_FEWEST_OF_A_PROCESS = 2
# Name of the memory in which rows to pin are chosen.
CHOOSING = "counting accesses"

# (table, cached rows, rows of a large batch) -> bytes that a store holds, by name
Reserves = Callable[[Table, int, int], Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreWishes:
    """Options of a run that concern its store. None leaves a choice to the store.

    cache_bytes: memory for rows that stay between batches.
    disk_bytes: disk space for batches sampled ahead.
    superbatch: batches sampled ahead together at most.
    scratch: folder for the run's temporary files.
    prepared: batches prepared before the run.
    device_rows: rows that lie on a device.
    pins_first_rows: the rows to pin are the first ones of the table.
    is_lent: the model reads rows in the store's memory.
    holds_while_waiting: the consumer keeps a batch while it waits for the next one.
    most_in_flight: batches in flight that get memory before cached rows do.
    lists_in_cache_bytes: bytes of neighbour lists that have the memory of cached rows while a superbatch is sampled, as
        many as it has room for.
    """

    scratch: Path
    cache_bytes: int | None = None
    disk_bytes: int | None = None
    superbatch: int | None = None
    prepared: PreparedBatches | None = None
    device_rows: int = 0
    pins_first_rows: bool = False
    is_lent: bool = False
    holds_while_waiting: bool = False
    most_in_flight: int | None = None
    lists_in_cache_bytes: int = 0

    def cache_rows(self, table: Table) -> int:
        """Rows that cache_bytes have room for; 0 if it is None."""
        return min((self.cache_bytes or 0) // table.row_bytes, table.num_rows)

    def batches_before_cache(self) -> int:
        """Batches in flight that get memory before cached rows do: few if the store chooses the size of its cache."""
        if self.most_in_flight is not None:
            return self.most_in_flight
        return FEW_IN_FLIGHT if self.cache_bytes is None and self.prepared is None else MOST_IN_FLIGHT


class NamedLists(NamedTuple):
    """The least memory for neighbour lists: bytes by name, and the names of what all processes share."""

    reserves: Mapping[str, int]
    shared: frozenset[str]


class StoreRoom:
    """Memory and reasons of a plan while a store divides them: first require(), then take().

    sizes: sizes of a large batch.
    sampling_threads: threads that sample, known after require().
    in_flight: memory of batches in flight, known after require().
    reserved: bytes by name.
    shared: names of the data of which all processes of the machine have one copy.
    num_processes: processes that share the budget.
    reasons: lines for people, in the order of the choices.
    """

    def __init__(
        self,
        budget: Budget,
        sizes: BatchSizes,
        wishes: StoreWishes,
        reasons: list[str],
        *,
        rows_bytes: int,
        added_bytes: int,
        reserved: Mapping[str, int],
        sampling_threads: int,
        take_lists: Callable[[StoreRoom], None],
        lists: NamedLists | None = None,
        choosing: Mapping[str, int] | None = None,
        shared: Collection[str] = (),
    ) -> None:
        """Divide what a budget has left.

        rows_bytes: bytes of the rows of a large batch. added_bytes: bytes that preparing it adds.
        reserved: bytes that every store needs, by name.
        take_lists: called once the smallest reservations are made; takes memory for neighbour lists.
        lists: memory that it takes at least; None: there are no lists.
        choosing: bytes by name while rows to pin are chosen, besides lists and a batch, which CHOOSING gets; None where
            none are. Nothing else is in memory then.
        shared: see above.
        """
        self.sizes = sizes
        self.reasons = reasons
        self.sampling_threads = sampling_threads
        self.reserved = dict(reserved)
        self.shared = set(shared)
        self.num_processes = budget.num_processes
        # Of all processes together.
        self._left_bytes = 0
        self._budget = budget
        self._wishes = wishes
        self._added_bytes = added_bytes
        self._batch_bytes = self.block_bytes + rows_bytes
        self._take_lists = take_lists
        self._lists = lists or NamedLists({}, frozenset())
        self._choosing = choosing
        self._names: tuple[str, ...] = ()
        self.in_flight: BatchesInFlight

    @property
    def left_bytes(self) -> int:
        """Bytes that nothing has taken yet, of this process's part of the budget."""
        return self._left_bytes // self.num_processes

    @property
    def left_of_all_bytes(self) -> int:
        """Bytes that nothing has taken yet, of the whole budget."""
        return self._left_bytes

    @property
    def block_bytes(self) -> int:
        """Bytes of a large batch without its rows."""
        return buffer_bytes(self.sizes.block_bytes) + self._added_bytes

    @property
    def reserves(self) -> dict[str, int]:
        """Bytes of the store, by the names that require() was given."""
        return {name: self.reserved[name] for name in self._names}

    def require(
        self, smallest: Mapping[str, int], *, assembles: bool = False, extra_bytes: int = 0, num_batches: int = 1
    ) -> None:
        """Reserve the smallest memory that the store runs in, then memory for neighbour lists and wide reads.

        smallest: bytes that the store holds by name; take() may add to these names.
        assembles: rows are copied together in other memory than they are read to.
        extra_bytes: bytes of a batch in flight in addition to its block, and to its rows if nothing is assembled.
        num_batches: batches in flight at least.

        Raises BudgetError, naming the smallest budget that works.
        """
        self._names = tuple(smallest)
        if self.sizes.repeats_nodes and not assembles:
            # The distinct rows are read to other memory than the model's.
            assembles, extra_bytes = True, extra_bytes + self._batch_bytes - buffer_bytes(self.sizes.block_bytes)
        is_lent = self._wishes.is_lent
        self.in_flight = BatchesInFlight.fewest(
            # The model reads lent rows in the store's memory.
            self.block_bytes if is_lent else self._batch_bytes,
            self.sizes.block_bytes,
            assembles=assembles and not is_lent,
            extra_bytes=extra_bytes,
            num_batches=num_batches,
            holds_while_waiting=self._wishes.holds_while_waiting,
        )
        self.reserved.update(smallest)
        self.reserved["mini-batches in flight"] = self.in_flight.num_bytes
        self.reserved["staging"] = SMALLEST_STAGING_BYTES
        self._require(self.reserved, self.in_flight.batch_bytes)
        # Lists come first, because every batch draws from them; wide staging keeps the disk busy.
        self._divide_lists(self.in_flight.batch_bytes)
        more_bytes = min(STAGING_BYTES - SMALLEST_STAGING_BYTES, self.left_bytes)
        self.take("staging", more_bytes & ~(SMALLEST_STAGING_BYTES - 1))

    def require_parts(self, num_bytes: int) -> None:
        """Reserve the smallest memory of the stores of all node types, then memory for neighbour lists.

        Raises BudgetError, naming the smallest budget that works.
        """
        self._require({**self.reserved, "feature stores": num_bytes}, self._batch_bytes)
        self._divide_lists(self._batch_bytes)

    def _require(self, smallest: Mapping[str, int], batch_bytes: int) -> None:
        """Note what bytes by name leave. Raises BudgetError if they do not fit next to the least memory for lists.

        batch_bytes: bytes of a batch. Choosing rows to pin must fit, too.
        """
        lists, shared = self._lists, self.shared | self._lists.shared
        phases = [
            {**phase, **{name: phase.get(name, 0) + more for name, more in lists.reserves.items()}}
            for phase in (smallest, self._chosen_by(batch_bytes))
        ]
        self._budget.require(max(phases, key=lambda phase: self._budget.needed_by(phase, shared)), shared)
        self._left_bytes = self._budget.left_after(smallest, self.shared)

    def _divide_lists(self, batch_bytes: int) -> None:
        """Take memory for lists, of which choosing rows to pin needs some. batch_bytes: of a batch."""
        left_bytes = self._budget.left_after(self._chosen_by(batch_bytes), self.shared)
        kept_bytes = max(0, self._left_bytes - left_bytes)
        self._left_bytes -= kept_bytes
        self._take_lists(self)
        self._left_bytes += kept_bytes

    def _chosen_by(self, batch_bytes: int) -> dict[str, int]:
        """Return the bytes by name while rows to pin are chosen, without lists."""
        found = dict(self._choosing or {})
        if found:
            found[CHOOSING] += batch_bytes
        return found

    def adopt(self, parts: Sequence[StoreRoom]) -> None:
        """Add up the batches in flight and the staging of the stores of node types, which divided require_parts()."""
        self.in_flight = together([part.in_flight for part in parts])
        for name in ("mini-batches in flight", "staging"):
            self.reserved[name] = sum(part.reserved[name] for part in parts)

    def take(self, name: str, num_bytes: int) -> None:
        """Add bytes that are left to a name."""
        self.reserved[name] = self.reserved.get(name, 0) + num_bytes
        self._left_bytes -= num_bytes * (1 if name in self.shared else self.num_processes)

    def grow_in_flight(self, most_in_flight: int) -> None:
        """Take memory for up to most_in_flight batches of all processes together: they read from one disk."""
        each = min(most_in_flight, max(_FEWEST_OF_A_PROCESS, -(-most_in_flight // self.num_processes)))
        grown = self.in_flight.grow(self.left_bytes, each)
        self.take("mini-batches in flight", grown.num_bytes - self.in_flight.num_bytes)
        self.in_flight = grown


def divide_for_batches(_table: Table, room: StoreRoom, wishes: StoreWishes) -> StoreShare:
    """Give memory to batches in flight only: the division of a store that keeps nothing."""
    room.require({}, extra_bytes=room.sizes.num_rows * BYTES_PER_ROW_IN_FLIGHT)
    room.grow_in_flight(wishes.most_in_flight or MOST_IN_FLIGHT)
    return StoreShare()


def row_bytes_reserved(table: Table, reserves: Reserves, num_processes: int = 1, shared: Collection[str] = ()) -> int:
    """Bytes that one more cached row takes in all processes together. shared: names of what they have in one copy."""
    empty = reserves(table, 0, 1)
    return sum(
        (num_bytes - empty[name]) * (1 if name in shared else num_processes)
        for name, num_bytes in reserves(table, 1, 1).items()
    )


def keep_rows(table: Table, room: StoreRoom, wishes: StoreWishes, reserves: Reserves) -> int:
    """Return how many rows are cached: what --cache asks for, which is reserved already, or what fits."""
    num_rows, why = wishes.cache_rows(table), "--cache"
    if wishes.cache_bytes is None:
        batch_rows = room.sizes.num_rows
        empty = reserves(table, 0, batch_rows)
        row_bytes = row_bytes_reserved(table, reserves, room.num_processes, room.shared)
        num_rows = min(room.num_processes * room.left_bytes // row_bytes, table.num_rows)
        for name, num_bytes in reserves(table, num_rows, batch_rows).items():
            room.take(name, num_bytes - empty[name])
        why = "the memory left"
    share = f"{num_rows / max(table.num_rows, 1):.1%} of {table.num_rows}"
    room.reasons.append(f"{num_rows} rows stay in memory ({share}; {why})")
    return num_rows


def choose_superbatch(
    room: StoreRoom,
    wishes: StoreWishes,
    bytes_per_batch: int,
    num_on_disk: int = SUPERBATCHES_ON_DISK,
    other_bytes: int = 0,
) -> int:
    """Return how many batches are sampled ahead at once: superbatches share the disk (Ginex, section 3.5).

    num_on_disk: superbatches that are on the disk at once. other_bytes: what else the store has there.

    No more than --superbatch, if it is given, and no more than the disk has room for.

    Raises ConfigError if the disk has no room for one batch.
    """
    disk_bytes, source = wishes.disk_bytes, ""
    if disk_bytes is None:
        disk_bytes, source = free_bytes(wishes.scratch) // 2, f" (half of the free space at {wishes.scratch})"
    batch_bytes = num_on_disk * bytes_per_batch
    smallest_bytes = batch_bytes + other_bytes
    superbatch = (disk_bytes - other_bytes) // batch_bytes
    if superbatch < 1:
        raise ConfigError(
            f"--disk {format_bytes(disk_bytes)}{source} is too small to sample ahead: "
            f"use --disk {-(-smallest_bytes // 1_000_000)}MB or more, or --scratch on another disk"
        )
    of_disk = f"{format_bytes(disk_bytes)} on disk{source}"
    if wishes.superbatch is not None and wishes.superbatch <= superbatch:
        superbatch, of_disk = wishes.superbatch, "--superbatch"
    count = "two superbatches" if num_on_disk > 1 else "one superbatch after the other"
    room.reasons.append(f"Sampling up to {superbatch} batches ahead ({count}, {of_disk})")
    return superbatch
