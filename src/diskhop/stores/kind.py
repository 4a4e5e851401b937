"""The description of a feature store that planner and pipeline work by: one `StoreKind` per store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskhop.plans import Prediction, StoreShare
from diskhop.protocols import FeatureStore, Table
from diskhop.stores.costs import Scenario
from diskhop.stores.resources import PreparedBatches, StoreResources
from diskhop.stores.room import StoreRoom, StoreWishes


def accept(_table: Table, _wishes: StoreWishes) -> str:
    """Accept every table and all options."""
    return ""


def keep_none(_table: Table, _share: StoreShare) -> int:
    """Return 0: no rows stay in memory."""
    return 0


def keep_cached(_table: Table, share: StoreShare) -> int:
    """Return the number of rows that a share has memory for."""
    return share.cache_rows


def keep_all(table: Table, _share: StoreShare) -> int:
    """Return the number of rows of a table."""
    return table.num_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """A feature store: how it opens, what it costs, and which options it knows.

    name: the value of --store.
    simplicity: rank among equally fast stores; the lowest is chosen.
    uses: options that have an effect: 'cache', 'disk', 'superbatch', 'scratch', 'pinned', 'ordered'.
    open: opens the store on a table.
    divide: reserves its memory by name and says why. Raises BudgetError, naming the smallest budget that works.
    simulate: predicts an epoch on a short trace, without I/O.
    refuses: why the store cannot serve a table with these options, in one line; '' if it can.
    looks_ahead: the store is a LookAheadStore.
    takes_turns: neighbour lists can have the memory of its cached rows while a superbatch is sampled.
    lends: the model can read rows in the store's memory until release().
    is_bounded: the budget bounds all memory that the store takes.
    find_prepared: opens batches that were prepared in a folder, for a store that can replay them.
    shares: names of its memory of which all processes of a machine have one copy.
    resident_rows: rows that stay in memory from the first batch to the last; a device may read them there. 0 if others
        take their place.
    rest: name of the store that has the rows which are not resident, where the resident ones lie outside the store;
        '' for the store itself, with a share without cached rows.
    """

    name: str
    simplicity: int
    uses: frozenset[str] = frozenset()
    # A ticket means something to its own store only.
    open: Callable[[Table, StoreResources], FeatureStore[Any]]
    divide: Callable[[Table, StoreRoom, StoreWishes], StoreShare]
    simulate: Callable[[Scenario], Prediction]
    refuses: Callable[[Table, StoreWishes], str] = accept
    looks_ahead: bool = False
    takes_turns: bool = False
    lends: bool = False
    is_bounded: bool = True
    find_prepared: Callable[[Path, Table], PreparedBatches] | None = None
    shares: frozenset[str] = frozenset()
    resident_rows: Callable[[Table, StoreShare], int] = keep_none
    rest: str = ""
