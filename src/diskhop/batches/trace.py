"""Access traces: prefetched batches in a file, in order (Ginex's superbatch, section 3.1).

A trace is appended to and can be read at the same time, also by other processes. Everything is little-endian:

    offset 0      magic "DHTR", uint16 version (1), 2 zeros
           8      uint64: global number of the first batch, bytes of the settings
          24      the settings: JSON in ASCII, keys sorted, without spaces; then zeros
        4088      uint64 xxh3 of all bytes before it
        4096      the record of the first batch (record.py), zeros up to a multiple of 4096, the next record ...

Batches are stored in the order in which they are requested. Writer and reader get this order as batch numbers, and each
record repeats its number, so that a misplaced record is detected. Records are written one after another, each from
first byte to last: a record is complete as soon as the file is long enough. Memory is taken from the pool;
writer_bytes() and reader_bytes() return how much.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File
from diskhop.batches.record import decode_batch, decode_header, decode_node_ids, describe_batch, encode_into
from diskhop.batches.record_header import FIRST_BYTES, RecordHeader
from diskhop.errors import ConfigError, FormatError
from diskhop.io.atomic import destination_errors
from diskhop.io.streams import in_pieces
from diskhop.protocols import NodeIds, Purpose, SampledBatch, SamplerSpec, SeedTimes
from diskhop.system.memory import buffer_bytes

VERSION = 1
# Records start at multiples of this. Direct I/O accepts it on every common disk, and one block holds a record's header.
ALIGNMENT_BYTES = FIRST_BYTES

_MAGIC = b"DHTR"
_HEADER = struct.Struct("<4sHHQQ")
_CHECKSUM = struct.Struct("<Q")
_CHECKSUM_OFFSET = ALIGNMENT_BYTES - _CHECKSUM.size
_REMEDY = "remove it; the next run makes a new one"
# Settings that only some samplers write; see SamplerSpec.to_dict().
_OPTIONAL_SETTINGS = ("sampler", "parameters")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """Everything that determines the batches of a trace. A trace with other settings is never used.

    dataset_hash: checksum of the manifest.
    sampler: expands the seeds.
    seed: seed of the draws.
    purpose: use of the draws.
    epoch: epoch of the draws.
    batch_size: seeds per batch.
    seeds_hash: hash_seeds() of the epoch's seeds in order.
    """

    dataset_hash: str
    sampler: SamplerSpec
    seed: int
    purpose: Purpose
    epoch: int
    batch_size: int
    seeds_hash: str


def hash_seeds(seeds: NodeIds, times: SeedTimes = None) -> str:
    """Return the xxh3 of seeds, int64 (seeds), and of their times if they have some, as 16 hex digits."""
    digest = xxhash.xxh3_64_intdigest(np.ascontiguousarray(seeds, "<i8").data)
    if times is not None:
        digest = xxhash.xxh3_64_intdigest(np.ascontiguousarray(times, "<i8").data, digest)
    return f"{digest:016x}"


def writer_bytes(largest_record_bytes: int) -> int:
    """Bytes that a TraceWriter takes from its pool: one record in flight, one being encoded."""
    return 2 * buffer_bytes(_aligned(largest_record_bytes))


def reader_bytes(largest_record_bytes: int) -> int:
    """Bytes that each call of a TraceReader takes from its pool temporarily, in addition to the result."""
    return buffer_bytes(_aligned(largest_record_bytes))


class TraceWriter:
    """Writes a trace and replaces any file at the path. Use it from one thread at a time.

    append() returns while its record is in flight; finish() waits for the last one. Nothing is synced.

    num_nodes_total: nodes of the graph.
    numbers: global numbers of the batches in order, at least one. Appending only the first ones is allowed.
    Raises DestinationError.
    """

    def __init__(
        self,
        path: Path,
        settings: TraceSettings,
        num_nodes_total: int,
        engine: Engine,
        pool: BufferPool,
        numbers: Sequence[int],
    ) -> None:
        header = _encode_header(settings, numbers[0])
        self._path = path
        self._num_nodes_total = num_nodes_total
        self._engine = engine
        self._pool = pool
        self._numbers = numbers
        self._num_records = 0
        self._whole_bytes = 0
        self._ticket: int | None = None
        self._written_bytes = 0
        with destination_errors(path):
            # Readers of an earlier file at this path keep it, and never take its bytes for ours.
            path.unlink(missing_ok=True)
            self._file = File(str(path), "write")
        block = pool.take(ALIGNMENT_BYTES)
        block[:] = np.frombuffer(header, np.uint8)
        self._submit(block)
        self._settle()

    @property
    def num_bytes(self) -> int:
        """Length of the file, including the record in flight."""
        return self._whole_bytes + self._written_bytes

    def __len__(self) -> int:
        """Records appended; after an error, the complete records of the file."""
        return self._num_records + (self._ticket is not None)

    def append(self, batch: SampledBatch) -> None:
        """Append the next batch; the caller may change it once this returns.

        Raises DestinationError (a full disk) or WriteError if the previous record failed: the file then has neither of
        the two and ends after its last complete record. Raises ConfigError for a batch out of order.
        """
        expected = self._numbers[len(self) : len(self) + 1]
        if [batch.number] != list(expected):
            wanted = f"its next batch is number {expected[0]}" if expected else f"it has all its {len(self)} batches"
            raise ConfigError(f"{self._path}: {wanted}, got number {batch.number}")
        header = describe_batch(batch, self._num_nodes_total)
        content = self._pool.take(_aligned(header.num_bytes))
        encode_into(batch, header, content[: header.num_bytes])
        content[header.num_bytes :] = 0
        self._settle_record()
        self._submit(content)

    def finish(self) -> None:
        """Wait for the last record. Raises DestinationError or WriteError; earlier records stay complete."""
        self._settle_record()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._settle_record()
        # An error's traceback may keep this object alive; the descriptor must not stay open with it.
        del self._file

    def _submit(self, content: NDArray[np.uint8]) -> None:
        """Start writing; the engine keeps the content alive until wait()."""
        length = np.array([len(content)], np.uint64)
        offset, place = np.array([self._whole_bytes], np.uint64), np.zeros(1, np.uint64)
        self._ticket = self._engine.submit_write(self._file, offset, length, content, place)
        self._written_bytes = len(content)

    def _settle_record(self) -> None:
        if self._ticket is not None:
            self._settle()
            self._num_records += 1

    def _settle(self) -> None:
        """Wait for the write in flight; after a failure, truncate the file, which may have a part of it."""
        ticket, self._ticket = self._ticket, None
        written_bytes, self._written_bytes = self._written_bytes, 0
        assert ticket is not None
        with destination_errors(self._path):
            try:
                self._engine.wait(ticket)
            except OSError:
                os.truncate(self._path, self._whole_bytes)
                raise
        self._whole_bytes += written_bytes


@dataclass(frozen=True, slots=True)
class _Place:
    """Offset of a record in the file, and its header."""

    offset: int
    header: RecordHeader


class TraceReader:
    """The complete records of a trace, by index from 0; refresh() looks for more. Any thread may read.

    numbers: global numbers of the batches in order, at least one; the trace may have fewer.
    Raises ReadError, and FormatError for a file that is no trace, is damaged or truncated, or is of another version,
    other settings or other batches.
    """

    def __init__(
        self, path: Path, settings: TraceSettings, engine: Engine, pool: BufferPool, numbers: Sequence[int]
    ) -> None:
        self._path = path
        self._numbers = numbers
        self._engine = engine
        self._pool = pool
        self._file = File(str(path), "read")
        self._places: list[_Place] = []
        self._end = ALIGNMENT_BYTES
        num_bytes = self._file.num_bytes
        if num_bytes < ALIGNMENT_BYTES:
            raise FormatError(
                f"{path}: is no trace or a truncated one: {num_bytes} bytes, the header alone takes {ALIGNMENT_BYTES}; "
                f"{_REMEDY}"
            )
        _check_header(path, self._read(0, ALIGNMENT_BYTES).tobytes(), settings, numbers[0])
        self.refresh()

    def __len__(self) -> int:
        """Number of complete records found so far."""
        return len(self._places)

    def refresh(self) -> None:
        """Find records completed since the last call; reads one block of each. Use it from one thread at a time."""
        while self._end + FIRST_BYTES <= (num_bytes := self._file.num_bytes):
            with self._naming(len(self)):
                header = decode_header(self._read(self._end, FIRST_BYTES))
                if len(self) == len(self._numbers):
                    raise FormatError(f"exceeds the {len(self)} batches of this trace; {_REMEDY}")
                if header.number != self._numbers[len(self)]:
                    raise FormatError(
                        f"damaged: its number is {header.number}, not {self._numbers[len(self)]}; {_REMEDY}"
                    )
            end = self._end + _aligned(header.num_bytes)
            if end > num_bytes:
                break
            self._places.append(_Place(self._end, header))
            self._end = end

    def node_ids(self, index: int) -> NodeIds:
        """Read the node ids of a batch, int64 (nodes), into a buffer of the pool; only the record's prefix is read."""
        place = self._place(index)
        with self._naming(index):
            return decode_node_ids(self._read(place.offset, _aligned(place.header.prefix_bytes)), self._pool)

    def batch(self, index: int) -> SampledBatch:
        """Read a batch; its arrays share one buffer of the pool, batch.num_bytes long."""
        place = self._place(index)
        with self._naming(index):
            content = self._read(place.offset, _aligned(place.header.num_bytes))
            return decode_batch(content[: place.header.num_bytes], self._pool)

    def header(self, index: int) -> RecordHeader:
        """Return the header of a record."""
        return self._place(index).header

    def record(self, index: int) -> NDArray[np.uint8]:
        """Read a record's bytes as stored, into a buffer of the pool; decode_batch() checks them."""
        place = self._place(index)
        return self._read(place.offset, _aligned(place.header.num_bytes))[: place.header.num_bytes]

    def _place(self, index: int) -> _Place:
        if not 0 <= index < len(self._places):
            raise FormatError(
                f"{self._path}: has no record {index}, only {len(self)} complete ones up to byte {self._end} of "
                f"{self._file.num_bytes}; unless it is still being written, it is truncated: {_REMEDY}"
            )
        return self._places[index]

    def _read(self, offset: int, num_bytes: int) -> NDArray[np.uint8]:
        actual_bytes = self._file.num_bytes
        if actual_bytes < offset + num_bytes:
            raise FormatError(f"truncated: the file ends at byte {actual_bytes} of {offset + num_bytes}; {_REMEDY}")
        places, lengths = in_pieces(num_bytes)
        buffer = self._pool.take(num_bytes)
        self._engine.wait(self._engine.submit_read(self._file, places + np.uint64(offset), lengths, buffer, places))
        return buffer

    @contextlib.contextmanager
    def _naming(self, index: int) -> Iterator[None]:
        """Add the file and the record's index to a FormatError."""
        try:
            yield
        except FormatError as error:
            raise FormatError(f"{self._path}: record {index}: {error}") from None


def _encode_header(settings: TraceSettings, first_number: int) -> bytes:
    text = json.dumps(settings_as_json(settings), sort_keys=True, separators=(",", ":")).encode()
    header = _HEADER.pack(_MAGIC, VERSION, 0, first_number, len(text)) + text
    if len(header) > _CHECKSUM_OFFSET:
        limit = _CHECKSUM_OFFSET - _HEADER.size
        raise ConfigError(f"a trace's settings must fit {limit} bytes, got {len(text)}; use fewer fan-outs")
    block = header.ljust(_CHECKSUM_OFFSET, b"\0")
    return block + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(block))


def _check_header(path: Path, block: bytes, settings: TraceSettings, first_number: int) -> None:
    """Check a header against the wanted settings and the number of the first batch."""
    magic, version, _, stored_number, text_bytes = _HEADER.unpack_from(block)
    if magic != _MAGIC:
        raise FormatError(f"{path}: is no trace: it does not start with '{_MAGIC.decode()}'; remove it")
    if version != VERSION:
        raise FormatError(f"{path}: is a trace of version {version}, this diskhop reads version {VERSION}; {_REMEDY}")
    (expected,) = _CHECKSUM.unpack_from(block, _CHECKSUM_OFFSET)
    actual = xxhash.xxh3_64_intdigest(block[:_CHECKSUM_OFFSET])
    if actual != expected:
        raise FormatError(f"{path}: damaged: its header's checksum is {actual:016x}, not {expected:016x}; {_REMEDY}")
    try:
        stored = json.loads(block[_HEADER.size : _HEADER.size + text_bytes])
    except (ValueError, RecursionError):
        stored = None
    if not isinstance(stored, dict):
        raise FormatError(f"{path}: damaged: its settings are not a JSON object; {_REMEDY}")
    stored["first number"] = stored_number
    require_same_settings(path, stored, {**settings_as_json(settings), "first number": first_number}, "the trace")


def require_same_settings(path: Path, stored: Mapping[str, object], wanted: Mapping[str, object], what: str) -> None:
    """Raise FormatError for a file of other batches, naming the setting that differs."""
    for name in (*wanted, *_OPTIONAL_SETTINGS):
        if stored.get(name) != wanted.get(name):
            raise FormatError(
                f"{path}: is {what} of other batches: its {name} is {stored.get(name)}, not {wanted.get(name)}; "
                f"{_REMEDY}"
            )


def settings_as_json(settings: TraceSettings) -> dict[str, object]:
    """Return the settings as plain data for JSON."""
    return {
        "dataset_hash": settings.dataset_hash,
        **settings.sampler.to_dict(),
        "seed": settings.seed,
        "purpose": settings.purpose.name.lower(),
        "epoch": settings.epoch,
        "batch_size": settings.batch_size,
        "seeds_hash": settings.seeds_hash,
    }


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
