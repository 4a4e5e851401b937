"""A trace: its header, and its records one after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from diskhop._native import BufferPool
from diskhop.batches.trace import ALIGNMENT_BYTES, TraceReader, TraceSettings, TraceWriter, hash_seeds
from diskhop.errors import FormatError, ReadError
from diskhop.protocols import Purpose, neighbor_spec
from tests.fuzz.forge import with_block_checksum, with_record_checksums
from tests.fuzz.target import Target
from tests.graphs import threads_engine
from tests.unit.batches import small_batch

_SETTINGS = TraceSettings(
    dataset_hash="00c0ffee00c0ffee",
    sampler=neighbor_spec((2, -1)),
    seed=1,
    purpose=Purpose.TRAIN,
    epoch=0,
    batch_size=2,
    seeds_hash=hash_seeds(np.arange(5)),
)
_NUMBERS = range(3)
_ENGINE = threads_engine()


def forged(content: bytes) -> bytes:
    blocks = [
        content[begin : begin + ALIGNMENT_BYTES] for begin in range(ALIGNMENT_BYTES, len(content), ALIGNMENT_BYTES)
    ]
    return with_block_checksum(content[:ALIGNMENT_BYTES]) + b"".join(map(with_record_checksums, blocks))


def read(content: bytes, folder: Path) -> None:
    refused = None
    for number, each in enumerate((content, forged(content))):
        path = folder / f"trace-{number}.bin"
        path.write_bytes(each)
        try:
            reader = TraceReader(path, _SETTINGS, _ENGINE, BufferPool(1 << 20), _NUMBERS)
            for index in range(len(reader)):
                reader.node_ids(index)
                reader.batch(index)
        except FormatError as error:
            refused = error
    if refused is not None:
        raise refused


def seeds(folder: Path) -> Sequence[bytes]:
    path = folder / "trace.bin"
    with TraceWriter(path, _SETTINGS, 100, _ENGINE, BufferPool(1 << 20), _NUMBERS) as writer:
        for number in _NUMBERS:
            writer.append(dataclasses.replace(small_batch(), number=number))
        writer.finish()
    return [path.read_bytes()]


TARGET = Target(name="trace", read=read, errors=(FormatError, ReadError), seeds=seeds)
