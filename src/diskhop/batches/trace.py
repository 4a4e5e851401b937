"""Access traces: the batches of a span sampled ahead (Ginex's superbatch, section 3.1), in a file, in order.

A trace grows from front to back and can be read meanwhile, also by other processes. Everything is little-endian:

    offset 0      magic "DHTR", uint16 version (1), 2 zeros
           8      uint64: global number of the first batch, bytes of the settings
          24      the settings: JSON in ASCII, keys sorted, without spaces; then zeros
        4088      uint64 xxh3 of all bytes before it
        4096      the record of the first batch (sampled_record.py), zeros up to a multiple of 4096, the next record ...

Batches come in the order in which they will be asked for, of which writer and reader are told the numbers: each record
has its own, so that one in another's place is found out. Records are written one by one, each from its first byte to
its last: one is whole as soon as the file is long enough to hold it. Memory is the pool's; writer_bytes and
reader_bytes say how much.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import xxhash
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, File
from diskhop.batches.record import (
    FIRST_BYTES,
    RecordHeader,
    decode_batch,
    decode_header,
    decode_node_ids,
    describe_batch,
    encode_into,
)
from diskhop.errors import ConfigError, FormatError
from diskhop.io.atomic import destination_errors
from diskhop.io.streams import in_pieces
from diskhop.protocols import NodeIds, Purpose, SampledBatch
from diskhop.system.memory import buffer_bytes

VERSION = 1
# Records start at multiples of this: direct I/O takes them on every common disk, and one block holds what is walked.
ALIGNMENT_BYTES = FIRST_BYTES

_MAGIC = b"DHTR"
_HEADER = struct.Struct("<4sHHQQ")
_CHECKSUM = struct.Struct("<Q")
_CHECKSUM_OFFSET = ALIGNMENT_BYTES - _CHECKSUM.size
_REMEDY = "remove it: it is made again"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """All that decides which batches a trace holds: a trace of other settings is never used.

    dataset_hash: the manifest's checksum. seed: of the draws. seeds_hash: hash_seeds of the epoch's seeds in order.
    """

    dataset_hash: str
    fanouts: tuple[int, ...]
    seed: int
    purpose: Purpose
    epoch: int
    batch_size: int
    seeds_hash: str


def hash_seeds(seeds: NodeIds) -> str:
    """xxh3 of seeds, int64 (seeds), as 16 hex digits."""
    return f"{xxhash.xxh3_64_intdigest(np.ascontiguousarray(seeds, '<i8').data):016x}"


def writer_bytes(largest_record_bytes: int) -> int:
    """Memory that a TraceWriter takes of its pool: one record on its way to the disk, one being encoded."""
    return 2 * buffer_bytes(_aligned(largest_record_bytes))


def reader_bytes(largest_record_bytes: int) -> int:
    """Memory that each call of a TraceReader takes of its pool while it lasts, beside what it returns."""
    return buffer_bytes(_aligned(largest_record_bytes))


class TraceWriter:
    """Writes a trace in place of what is at the path. Not for several threads at once.

    append() returns while its record is on its way to the disk; finish() waits for the last. Nothing is synced.
    num_nodes_total: nodes of the graph. numbers: global numbers of the batches in their order, at least one; not all
    of them need be appended. Raises DestinationError.
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
            # Who still reads the file that was here keeps it; and its bytes cannot be taken for ours.
            path.unlink(missing_ok=True)
            self._file = File(str(path), "write")
        block = pool.take(ALIGNMENT_BYTES)
        block[:] = np.frombuffer(header, np.uint8)
        self._submit(block)
        self._settle()

    @property
    def num_bytes(self) -> int:
        """Length of the file, with the record that is on its way."""
        return self._whole_bytes + self._written_bytes

    def __len__(self) -> int:
        """Records appended; after an error, those that are whole on the file."""
        return self._num_records + (self._ticket is not None)

    def append(self, batch: SampledBatch) -> None:
        """Add the next batch; it may be changed once this returns.

        Raises DestinationError (a full disk) or WriteError where the record before this one failed: neither of the two
        is then in the file, which ends after its last whole record. Raises ConfigError for a batch out of turn.
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
        """Wait for the last record. Raises DestinationError or WriteError; those before it are whole all the same."""
        self._settle_record()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._settle_record()
        # An error's traceback may keep this object alive: not so the descriptor.
        del self._file

    def _submit(self, content: NDArray[np.uint8]) -> None:
        """Start writing; the engine holds the content until it is waited for."""
        length = np.array([len(content)], np.uint64)
        offset, place = np.array([self._whole_bytes], np.uint64), np.zeros(1, np.uint64)
        self._ticket = self._engine.submit_write(self._file, offset, length, content, place)
        self._written_bytes = len(content)

    def _settle_record(self) -> None:
        if self._ticket is not None:
            self._settle()
            self._num_records += 1

    def _settle(self) -> None:
        """Wait for what is on its way; cut it off if it failed, a part of it may be there."""
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
    """Where a record starts, and what its header says."""

    offset: int
    header: RecordHeader


class TraceReader:
    """The whole records of a trace, by index from 0; refresh() looks for more. Any thread may read.

    numbers: of the batches in their order, at least one; the trace may have fewer of them.
    Raises ReadError, and FormatError for what is no trace, damaged, truncated, of another version, of other settings or
    of other batches.
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
                f"{path}: is no trace or a truncated one: {num_bytes} bytes, its header alone takes {ALIGNMENT_BYTES}; "
                f"{_REMEDY}"
            )
        _check_header(path, self._read(0, ALIGNMENT_BYTES).tobytes(), settings, numbers[0])
        self.refresh()

    def __len__(self) -> int:
        """Records known to be whole."""
        return len(self._places)

    def refresh(self) -> None:
        """Find the records that became whole since; reads one block of each. One thread at a time."""
        while self._end + FIRST_BYTES <= (num_bytes := self._file.num_bytes):
            with self._naming(len(self)):
                header = decode_header(self._read(self._end, FIRST_BYTES))
                if len(self) == len(self._numbers):
                    raise FormatError(f"is one more than the {len(self)} that belong there; {_REMEDY}")
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
        """The node ids of a batch, int64 (nodes), in a buffer of the pool; only the record's prefix is read."""
        place = self._place(index)
        with self._naming(index):
            return decode_node_ids(self._read(place.offset, _aligned(place.header.prefix_bytes)), self._pool)

    def batch(self, index: int) -> SampledBatch:
        """A batch as it was appended; its arrays share one buffer of the pool, of batch.num_bytes."""
        place = self._place(index)
        with self._naming(index):
            content = self._read(place.offset, _aligned(place.header.num_bytes))
            return decode_batch(content[: place.header.num_bytes], self._pool)

    def header(self, index: int) -> RecordHeader:
        """What a record says of itself."""
        return self._place(index).header

    def record(self, index: int) -> NDArray[np.uint8]:
        """A record's bytes as they are on the disk, in a buffer of the pool: decode_batch() checks them."""
        place = self._place(index)
        return self._read(place.offset, _aligned(place.header.num_bytes))[: place.header.num_bytes]

    def _place(self, index: int) -> _Place:
        if not 0 <= index < len(self._places):
            raise FormatError(
                f"{self._path}: has no record {index}: it has {len(self)} whole ones, up to byte {self._end} of "
                f"{self._file.num_bytes}; if it does not grow any more, it is truncated: {_REMEDY}"
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
        """Say of what is wrong with a record where it is."""
        try:
            yield
        except FormatError as error:
            raise FormatError(f"{self._path}: record {index}: {error}") from None


def _encode_header(settings: TraceSettings, first_number: int) -> bytes:
    text = json.dumps(settings_as_json(settings), sort_keys=True, separators=(",", ":")).encode()
    header = _HEADER.pack(_MAGIC, VERSION, 0, first_number, len(text)) + text
    if len(header) > _CHECKSUM_OFFSET:
        raise ConfigError(f"a trace's settings take {len(text)} bytes, more than its header holds; name fewer fan-outs")
    block = header.ljust(_CHECKSUM_OFFSET, b"\0")
    return block + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(block))


def _check_header(path: Path, block: bytes, settings: TraceSettings, first_number: int) -> None:
    """Check a header against the settings and the first batch's number that are asked for."""
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
    except ValueError:
        stored = None
    if not isinstance(stored, dict):
        raise FormatError(f"{path}: damaged: its settings are not a JSON object; {_REMEDY}")
    stored["first number"] = stored_number
    require_same_settings(path, stored, {**settings_as_json(settings), "first number": first_number}, "the trace")


def require_same_settings(path: Path, stored: Mapping[str, object], wanted: Mapping[str, object], what: str) -> None:
    """Refuse what is of other batches. Raises FormatError, naming what differs."""
    for name, value in wanted.items():
        if stored.get(name) != value:
            raise FormatError(
                f"{path}: is {what} of other batches: its {name} is {stored.get(name)}, not {value}; {_REMEDY}"
            )


def settings_as_json(settings: TraceSettings) -> dict[str, object]:
    """The settings as JSON has them."""
    return asdict(settings) | {"fanouts": list(settings.fanouts), "purpose": settings.purpose.name.lower()}


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
