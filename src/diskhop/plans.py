"""What will run, as plain data: filled in by planning/, carried out by pipeline.py, stored in result.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What an option would cost, before it is tried.

    epoch_seconds: of one pass of training. Of these, if nothing hid anything: io_seconds the disk's, cores_seconds
    those in which all cores are busy, compute_seconds the model's part of them. open_seconds: before the first epoch,
    in every run; preparation_seconds: once, for what later runs find on the disk. reads, bytes_read, bytes_written: of
    an epoch. hit_rate: of its rows, from memory. disk_bytes: of what is kept on the disk, beside the dataset.
    """

    epoch_seconds: float
    io_seconds: float
    cores_seconds: float
    compute_seconds: float
    open_seconds: float = 0.0
    preparation_seconds: float = 0.0
    hit_rate: float = 0.0
    reads: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    disk_bytes: int = 0

    @property
    def seconds_before(self) -> float:
        """The first epoch."""
        return self.preparation_seconds + self.open_seconds

    def run_seconds(self, epochs: int) -> float:
        """Of a run of so many epochs, all that is done for it included."""
        return self.seconds_before + epochs * self.epoch_seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """An option that was not taken, and why, in a line; predicted: None where it cannot run."""

    option: str
    reason: str
    predicted: Prediction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What every plan has. threads: cores that all of the run shares. reserved: bytes by name.

    predicted: what it costs; None where nobody asked. rejected: the other options, the best first.
    """

    engine: str
    threads: int
    memory_bytes: int
    reserved: Mapping[str, int]
    reasons: tuple[str, ...]
    predicted: Prediction | None = None
    rejected: tuple[Rejected, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for result.json; what is not known is absent."""
        stored = {**asdict(self), "reserved": dict(self.reserved), "reasons": list(self.reasons)}
        if self.predicted is None:
            del stored["predicted"], stored["rejected"]
        else:
            stored["predicted_epoch_seconds"] = self.predicted.epoch_seconds
        return stored


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledPlan(RunPlan):
    """Every choice of a run, with its reason.

    topology: 'memory', 'cached' or 'mapped'; topology_cache_bytes: of 'cached', memory for lists.

    batch_bytes: of a large mini-batch as the model has it (measured, with headroom). bytes_on_their_way: of batches
    from their submission to the store until their rows are together; one is always let in. bytes_assembled: of those
    from then on, 0 where rows come right to their places and a batch stays what it was. The model's batch is one of
    them, unless holds_while_waiting: where a consumer keeps it while it waits for the next, as a loop's variable does,
    it is one more.

    buffer_rows: of a buffer that batches share, or that has the own rows of packed ones. partition_bytes: of the table,
    read at once for packing. extractors: batches that it has room for beside the model's, however
    large and different they are, while they are brought or wait for the model; most_extracting: that may be there while
    they share rows, 0 for no such bound. ordered: batches are delivered in their order, not as they are finished.

    layout: the folder of epochs that were packed ahead, '' for none.

    max_gap_bytes: the largest gap that is read over rather than skipped. staging_bytes: where reads of rows land.
    threads: cores that sampling, gathering and the model share. reserved: bytes by name.
    """

    store: str
    engine_depth: int
    topology: Literal["memory", "cached", "mapped"]
    topology_cache_bytes: int
    batch_bytes: int
    bytes_on_their_way: int
    bytes_assembled: int
    holds_while_waiting: bool
    sampling_threads: int
    max_gap_bytes: int
    max_read_bytes: int
    staging_bytes: int
    batch_rows: int
    cache_rows: int = 0
    buffer_rows: int = 0
    partition_bytes: int = 0
    extractors: int = 0
    most_extracting: int = 0
    ordered: bool = True
    pinned: str = "degree"
    superbatch: int = 0
    scratch: str = ""
    layout: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HopPlan(RunPlan):
    """Every choice of a run on hop tables, with its reason.

    tables: their folder; num_tables of num_rows rows each, table_bytes all together. placement: 'memory' or 'disk',
    where batches come from; shuffle: an epoch's order is of 'rows', or of 'chunks' of chunk_rows rows each. threads:
    cores of the model and of what brings batches. reserved: bytes by name.
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
    """Every choice of a run of embeddings, with its reason.

    num_partitions of partition_bytes each, num_slots of them in memory, of which a state of the order has `buffer`.
    states: of the order; loads: of partitions in an epoch after the first; prefetchable: the share of swaps that some
    bucket can be trained beside. overlap: partitions move while others are trained. edges_on_disk: they are read bucket
    by bucket. reserved: bytes by name.
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
    edges_on_disk: bool
