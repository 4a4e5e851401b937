"""What a plan is for: the batches that will be asked for, what the user fixed, and the disk that they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from diskhop.config.options import AUTO, require_known
from diskhop.config.train import PINNED
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError
from diskhop.protocols import SampledBatch
from diskhop.sampling.seeds import SeedSet, count_batches
from diskhop.stores.packed.layout import Layout
from diskhop.stores.packed.sizes import require_packable
from diskhop.stores.stores import STORES, StoreKind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """What the choice depends on. None leaves it open, as does the store 'auto'.

    seed_sets: the first one's is the pass that seconds are predicted of, epochs times. max_batches: of an epoch, 0 for
    all. cache_bytes: of rows kept between batches. disk_bytes: of what is sampled ahead. scratch: the folder for that.
    layout: epochs that were packed ahead. reuse: all epochs have the batches of the first. pinned, holds_while_waiting:
    see Plan. ordered: batches are to come in their order, also from a store that would deliver them as they are
    finished. reads_lent_rows: the consumer takes rows where the store has them, see MiniBatch. also_held: bytes of
    graph data that the caller keeps besides, by name (of labels). measure_step: seconds that the model takes for a
    batch, on the mean of a few steps; None: there is no model, or it is not known.
    """

    seed_sets: tuple[SeedSet, ...]
    seed: int
    store: str | None = None
    engine: str | None = None
    threads: int | None = None
    cache_bytes: int | None = None
    disk_bytes: int | None = None
    scratch: str | None = None
    pinned: str | None = None
    epochs: int = 1
    max_batches: int = 0
    reuse: bool = False
    holds_while_waiting: bool = False
    ordered: bool = False
    reads_lent_rows: bool = False
    layout: Layout | None = None
    also_held: Mapping[str, int] = field(default_factory=dict)
    measure_step: Callable[[SampledBatch], float] | None = None

    @property
    def num_batches(self) -> int:
        """Of an epoch."""
        seed_set = self.seed_sets[0]
        return count_batches(len(seed_set.seeds), seed_set.batch_size, self.max_batches)


def why_not(dataset: Dataset, workload: Workload, store: str) -> str:
    """In one line why a store cannot serve a workload, whatever the budget; empty where it can."""
    kind = STORES[store]
    table = dataset.features()
    if kind.packs and table is not None:
        try:
            require_packable(table)
        except ConfigError as error:
            return str(error)
    for option, value, has_use in (
        ("--cache", workload.cache_bytes, _keeps_rows),
        ("--disk", workload.disk_bytes, _looks_ahead),
        ("--scratch", workload.scratch, _looks_ahead),
        ("--pinned", workload.pinned, _pins),
    ):
        if value is not None and not has_use(kind):
            users = " or ".join(name for name, each in STORES.items() if has_use(each))
            return f"{option} has no use with the store '{store}': leave it out, or name {users}"
    return ""


def require_served(dataset: Dataset, workload: Workload, store: str) -> None:
    """Raise ConfigError for a store that cannot serve a workload."""
    require_known("store", store, (AUTO, *STORES))
    if workload.pinned is not None:
        require_known("way to pin rows", workload.pinned, PINNED)
    if store != AUTO and (reason := why_not(dataset, workload, store)):
        raise ConfigError(reason)


def _keeps_rows(kind: StoreKind) -> bool:
    return kind.keeps_rows


def _looks_ahead(kind: StoreKind) -> bool:
    return kind.looks_ahead


def _pins(kind: StoreKind) -> bool:
    return kind.pins
