"""A plan's input: the batches that will be requested, and the options that the user set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from diskhop.batches.sizes import BatchSizes
from diskhop.config.options import AUTO, require_known
from diskhop.config.sampled import PINNED
from diskhop.dataset.dataset import Dataset
from diskhop.derived.scratch import scratch_path
from diskhop.errors import ConfigError
from diskhop.pipeline.pinned import counts_accesses
from diskhop.plans import PreparedBytes
from diskhop.protocols import SampledBatch, SamplerSpec
from diskhop.sampling.seeds import SeedSet
from diskhop.stores.kind import StoreKind
from diskhop.stores.resources import PreparedBatches
from diskhop.stores.room import StoreWishes
from diskhop.stores.stores import STORES, store_kind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """Everything that the choice of a plan depends on. None leaves an option open, as does the store 'auto'.

    seed_sets: seed nodes of every pass; seconds are predicted for an epoch of the first one.
    seed: random seed of the run.
    store, engine, threads: the options of these names.
    cache_bytes: memory for rows that stay between batches.
    neighbor_cache_bytes: memory for neighbour lists that stay in memory.
    superbatch: batches sampled ahead together at most.
    disk_bytes, scratch: disk space for batches sampled ahead, and their folder.
    pinned, holds_while_waiting: see SampledPlan.
    epochs: epochs of the run.
    max_batches: batches per epoch at most, 0 for all.
    reuse: all epochs have the batches of the first one.
    ordered: batches must arrive in order, whatever the store.
    reads_lent_rows: the consumer can read rows in the store's memory, see MiniBatch.
    prepared: batches prepared before the run, for a store that can replay them.
    is_given: all batches are read from files, so that no neighbour list is needed.
    also_held: other graph data that the caller keeps in memory, as bytes by name.
    held_once: names of that of which all processes of the machine have one copy.
    num_ranks: processes on all machines that share out the batches; None: those that share the budget.
    may_take_turns: only sampling needs neighbour lists, so that rows may have their memory while batches are fetched.
    values: bytes that preparing a batch adds.
    sizes: sizes that no batch exceeds; None: measured on a few batches.
    device_bytes: memory of a device for rows, where batches are delivered; 0: none.
    measure_step: mean seconds of a few training steps on a batch; None without a model.
    """

    seed_sets: tuple[SeedSet, ...]
    seed: int
    store: str | None = None
    engine: str | None = None
    threads: int | None = None
    cache_bytes: int | None = None
    neighbor_cache_bytes: int | None = None
    superbatch: int | None = None
    disk_bytes: int | None = None
    scratch: str | None = None
    pinned: str | None = None
    epochs: int = 1
    max_batches: int = 0
    reuse: bool = False
    holds_while_waiting: bool = False
    ordered: bool = False
    reads_lent_rows: bool = False
    prepared: PreparedBatches | None = None
    is_given: bool = False
    also_held: Mapping[str, int] = field(default_factory=dict)
    held_once: frozenset[str] = frozenset()
    num_ranks: int | None = None
    may_take_turns: bool = False
    values: PreparedBytes = field(default_factory=PreparedBytes)
    sizes: BatchSizes | None = None
    device_bytes: int = 0
    measure_step: Callable[[SampledBatch], float] | None = None

    @property
    def samplers(self) -> tuple[SamplerSpec, ...]:
        """The samplers of all passes."""
        return tuple(seed_set.sampler for seed_set in self.seed_sets)

    @property
    def num_batches(self) -> int:
        """Batches per epoch, of all processes together."""
        num_batches = self.seed_sets[0].num_batches
        return min(num_batches, self.max_batches or num_batches)


def store_wishes(
    dataset: Dataset,
    workload: Workload,
    kind: StoreKind,
    most_in_flight: int | None = None,
    lists_in_cache_bytes: int = 0,
) -> StoreWishes:
    """Return the options of a workload that concern its store. lists_in_cache_bytes: see StoreWishes."""
    dtypes = {nodes.feature_dtype for nodes in dataset.nodes.values() if nodes.feature_table() is not None}
    # int8 is decoded to other memory.
    has_rows = bool(dtypes) and "int8" not in dtypes
    return StoreWishes(
        scratch=scratch_path(dataset.path, workload.scratch),
        cache_bytes=workload.cache_bytes,
        disk_bytes=workload.disk_bytes,
        superbatch=workload.superbatch,
        prepared=workload.prepared,
        pins_first_rows=not workload.device_bytes
        and not counts_accesses(dataset, kind.name, workload.pinned or PINNED[0]),
        # Lent rows are released before the next batch is requested.
        is_lent=has_rows and kind.lends and workload.reads_lent_rows and not workload.holds_while_waiting,
        holds_while_waiting=workload.holds_while_waiting,
        most_in_flight=most_in_flight,
        lists_in_cache_bytes=lists_in_cache_bytes,
    )


def for_store(workload: Workload, kind: StoreKind) -> Workload:
    """Leave out the options that have no effect with a store, and keep the order of batches.

    The choice of a store must not change what is trained, so its batches arrive in order.
    """
    return replace(
        workload,
        store=kind.name,
        cache_bytes=workload.cache_bytes if "cache" in kind.uses else None,
        disk_bytes=workload.disk_bytes if "disk" in kind.uses else None,
        superbatch=workload.superbatch if "superbatch" in kind.uses else None,
        scratch=workload.scratch if "scratch" in kind.uses else None,
        pinned=workload.pinned if "pinned" in kind.uses else None,
        prepared=workload.prepared if kind.find_prepared is not None else None,
        ordered=True,
    )


def why_not(dataset: Dataset, workload: Workload, store: str) -> str:
    """Return why a store cannot serve a workload, whatever the budget, in one line; '' if it can."""
    kind = store_kind(store, dataset.feature_table())
    for option, value in (
        ("cache", workload.cache_bytes),
        ("disk", workload.disk_bytes),
        ("superbatch", workload.superbatch),
        ("scratch", workload.scratch),
        ("pinned", workload.pinned),
    ):
        if value is not None and option not in kind.uses:
            users = " or ".join(name for name, each in STORES.items() if option in each.uses)
            return f"--{option} has no effect with --store {store}; remove it or use --store {users}"
    if workload.reuse and workload.superbatch is not None:
        return "--superbatch has no effect with --reuse, which packs whole epochs ahead; remove one of them"
    table = dataset.feature_table()
    return "" if table is None else kind.refuses(table, store_wishes(dataset, workload, kind))


def require_served(dataset: Dataset, workload: Workload, store: str) -> None:
    """Raise ConfigError for a store that cannot serve a workload."""
    require_known("store", store, (AUTO, *STORES))
    if workload.pinned is not None:
        require_known("way to pin rows", workload.pinned, PINNED)
    if store != AUTO and (reason := why_not(dataset, workload, store)):
        raise ConfigError(reason)
