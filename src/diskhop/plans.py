"""Plans: what will run, as plain data. `planning` fills them in, pipelines carry them out, result.json stores them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Predicted cost of a run, before it is tried.

    epoch_seconds: seconds of one training epoch, with disk and cores overlapped; of several, one in the middle.
    start_seconds: how much longer the first epochs of several take together, which find less prefetched.
    io_seconds: seconds that the disk is busy per epoch.
    cores_seconds: seconds that all cores are busy per epoch.
    compute_seconds: the model's part of cores_seconds.
    open_seconds: seconds before the first epoch, in every run.
    preparation_seconds: seconds of work that later runs find on the disk; spent once.
    hit_rate: share of an epoch's rows that come from memory, 0 to 1.
    reads, bytes_read, bytes_written: disk traffic of one epoch, of all processes on this machine together.
    disk_bytes: bytes that stay on the disk in addition to the dataset.
    """

    epoch_seconds: float
    io_seconds: float
    cores_seconds: float
    compute_seconds: float
    start_seconds: float = 0.0
    open_seconds: float = 0.0
    preparation_seconds: float = 0.0
    hit_rate: float = 0.0
    reads: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    disk_bytes: int = 0

    @property
    def seconds_before(self) -> float:
        """Seconds before the first epoch begins."""
        return self.preparation_seconds + self.open_seconds

    def run_seconds(self, epochs: int) -> float:
        """Seconds of a run of n epochs, everything before the first one included."""
        return self.seconds_before + self.start_seconds + epochs * self.epoch_seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """A step of planned work.

    name: name of the step.
    bytes_read, bytes_written: disk traffic.
    seconds: predicted time.
    """

    name: str
    bytes_read: int
    bytes_written: int
    seconds: float


class PlannedSteps:
    """Totals of a plan that consists of steps."""

    __slots__ = ()
    steps: tuple[StepPlan, ...]

    @property
    def bytes_read(self) -> int:
        """Bytes read by all steps."""
        return sum(step.bytes_read for step in self.steps)

    @property
    def bytes_written(self) -> int:
        """Bytes written by all steps."""
        return sum(step.bytes_written for step in self.steps)

    @property
    def seconds(self) -> float:
        """Predicted time of all steps."""
        return sum(step.seconds for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """An option that was not taken, with the reason in one line; predicted is None if it cannot run."""

    option: str
    reason: str
    predicted: Prediction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The fields that every plan has.

    engine: name of the I/O engine.
    threads: cores that the whole run shares.
    memory_bytes: the whole budget.
    reserved: bytes of the budget by name, as one process has them.
    num_processes: processes on this machine that share the budget.
    shared: names of the reserved data of which they have one copy; the rest is there once per process.
    reasons: why the choices were made, one line each.
    predicted: predicted cost; None if no prediction was made.
    rejected: the other options, the best first.
    """

    engine: str
    threads: int
    memory_bytes: int
    reserved: Mapping[str, int]
    reasons: tuple[str, ...]
    predicted: Prediction | None = None
    rejected: tuple[Rejected, ...] = ()
    num_processes: int = 1
    shared: tuple[str, ...] = ()

    @property
    def reserved_bytes(self) -> int:
        """Bytes of the budget that all processes of the machine take together."""
        shared_bytes = sum(self.reserved[name] for name in self.shared)
        return shared_bytes + self.num_processes * (sum(self.reserved.values()) - shared_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for result.json; unknown values are absent."""
        stored = {**asdict(self), "reserved": dict(self.reserved), "reasons": list(self.reasons)}
        if self.num_processes == 1:
            del stored["num_processes"], stored["shared"]
        if self.predicted is None:
            del stored["predicted"], stored["rejected"]
        else:
            stored["predicted_epoch_seconds"] = self.predicted.epoch_seconds
        return stored


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreShare:
    """Memory and disk that a plan gives to its feature store. A store with numbers of its own extends this class.

    reserves: bytes that the store holds by name, a part of the plan's `reserved`.
    cache_rows: rows that stay in memory between batches.
    buffer_rows: rows of the buffer that batches in flight share.
    partition_bytes: bytes of the table that are read at once for packing.
    extractors: batches in flight that fit the buffer even if they share no row.
    most_extracting: batches in flight at most, where they share rows; 0 for no such bound.
    superbatch: batches sampled ahead at once; 0 if the store does not look ahead.
    first_superbatch: those of a run's first superbatch, at most.
    lists_in_cache_bytes: bytes of neighbour lists that have the memory of the cached rows while a superbatch is sampled
        (Ginex, section 3.1); 0 if lists have memory of their own.
    scratch: folder for the run's temporary files, '' for none.
    layout: folder of batches prepared before the run, '' for none.
    """

    reserves: Mapping[str, int] = field(default_factory=dict)
    cache_rows: int = 0
    buffer_rows: int = 0
    partition_bytes: int = 0
    extractors: int = 0
    most_extracting: int = 0
    superbatch: int = 0
    first_superbatch: int = 0
    lists_in_cache_bytes: int = 0
    scratch: str = ""
    layout: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedBytes:
    """Bytes that preparing a batch adds for each of its nodes and edges, and for the batch itself."""

    per_node: int = 0
    per_edge: int = 0
    per_batch: int = 0

    def plus(self, other: PreparedBytes) -> PreparedBytes:
        """Return the bytes of both."""
        return PreparedBytes(
            per_node=self.per_node + other.per_node,
            per_edge=self.per_edge + other.per_edge,
            per_batch=self.per_batch + other.per_batch,
        )

    def of(self, num_nodes: int, num_edges: int) -> int:
        """Bytes of a batch."""
        return num_nodes * self.per_node + num_edges * self.per_edge + self.per_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlaces:
    """Places of feature rows for a device, the most accessed first.

    device_rows: rows on the device.
    pinned_rows: rows in pinned memory, which the device reads by itself. The store has the others.
    parts: those of each node type of a graph with types, whose rows the two count together; empty for others.
    """

    device_rows: int
    pinned_rows: int
    parts: Mapping[str, RowPlaces] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """Rows in both memories."""
        return self.device_rows + self.pinned_rows

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for result.json."""
        counts = {"device_rows": self.device_rows, "pinned_rows": self.pinned_rows}
        parts = {name: each.to_dict() for name, each in self.parts.items()}
        return {**counts, "parts": parts} if parts else counts


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledPlan(RunPlan):
    """Every choice of a run on sampled neighbours.

    store: name of the feature store.
    share: memory and disk of the feature store.
    engine_depth: reads that the engine keeps in flight.
    topology: where the neighbour lists are: 'memory', 'cached', or 'mapped' where no batch is sampled from them.
    topology_cache_bytes: memory for lists, if they are 'cached'; that of the cached rows, if the share says so.
    batch_bytes: bytes of a large mini-batch as the model gets it (measured, with headroom).
    bytes_in_flight: bytes of batches from their submission to the store until their rows are assembled. One batch is
        always admitted. If nothing is assembled, the model's batch is among them.
    bytes_assembled: bytes of assembled batches; 0 if rows arrive in their final place.
    holds_while_waiting: the consumer keeps a batch while it waits for the next one, which takes one batch more.
    sampling_threads: threads that sample.
    max_gap_bytes: reads closer than this are merged.
    max_read_bytes: bytes of one read at most.
    staging_bytes: bytes of the buffers that reads of rows land in.
    batch_rows: rows of a large mini-batch (measured, with headroom).
    ordered: batches arrive in order; otherwise as they are finished.
    pinned: how rows to pin are chosen, 'degree' or 'accesses'.
    values: bytes that preparing a batch adds.
    columns: weights and times that samplers draw by, as pairs of their use and name.
    row_places: where rows lie for a device; None: the store has all of them.
    """

    store: str
    engine_depth: int
    topology: Literal["memory", "cached", "mapped"]
    topology_cache_bytes: int
    batch_bytes: int
    bytes_in_flight: int
    bytes_assembled: int
    holds_while_waiting: bool
    sampling_threads: int
    max_gap_bytes: int
    max_read_bytes: int
    staging_bytes: int
    batch_rows: int
    share: StoreShare = field(default_factory=StoreShare)
    ordered: bool = True
    pinned: str = "degree"
    values: PreparedBytes = field(default_factory=PreparedBytes)
    columns: tuple[tuple[str, str], ...] = ()
    row_places: RowPlaces | None = None

    @property
    def num_resident(self) -> int:
        """Rows that stay from the first batch to the last, in memory and on a device."""
        return self.share.cache_rows if self.row_places is None else self.row_places.num_rows

    def to_dict(self) -> dict[str, Any]:
        """Plain data for result.json, where the store's share stands among the other fields."""
        stored = RunPlan.to_dict(self)
        share = stored.pop("share")
        # Its bytes are in "reserved" already.
        del share["reserves"], stored["values"]
        if not self.share.lists_in_cache_bytes:
            del share["lists_in_cache_bytes"]
        if not self.columns:
            del stored["columns"]
        if self.row_places is None:
            del stored["row_places"]
        else:
            stored["row_places"] = self.row_places.to_dict()
        # The name that result.json has had from the start.
        stored["bytes_on_their_way"] = stored.pop("bytes_in_flight")
        return {**stored, **share}


@dataclass(frozen=True, slots=True, kw_only=True)
class HopPlan(RunPlan):
    """Every choice of a run on hop tables.

    tables: folder of the tables.
    num_tables, num_rows: number of tables, and of rows in each.
    table_bytes: bytes of all tables together.
    placement: where batches come from, 'memory' or 'disk'.
    shuffle: whether an epoch shuffles 'rows' or 'chunks'.
    chunk_rows: rows of a chunk.
    """

    tables: str
    num_tables: int
    num_rows: int
    table_bytes: int
    placement: str
    shuffle: str
    chunk_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedPlan(RunPlan):
    """Every choice of a run of embeddings.

    num_partitions, partition_bytes: number of partitions, and bytes of each.
    buffer: partitions that a state of the order has in memory.
    num_slots: partitions that memory has room for.
    partition_order: name of the order in which partitions are loaded.
    states: states of the order per epoch.
    loads: partitions loaded per epoch after the first one.
    prefetchable: share of swaps that overlap with training on some bucket, 0 to 1.
    overlap: partitions are swapped while others are trained.
    trained_meanwhile: share of the edges that are trained while partitions move, 0 to 1.
    edges_on_disk: edges are read bucket by bucket.
    """

    num_partitions: int
    partition_bytes: int
    buffer: int
    num_slots: int
    partition_order: str
    states: int
    loads: int
    prefetchable: float
    overlap: bool
    trained_meanwhile: float
    edges_on_disk: bool
