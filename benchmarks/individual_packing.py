"""Packing each mini-batch separately (DiskGNN, section 5.2, the baseline of Figure 14), or all of them in one pass.

'individual': the rows of a batch are read one by one, one read per row, at the engine's full depth; then its chunk is
written while the rows of the next are read. 'batched': diskhop.pack(). Both write the same file with the same checksums
for the same batches. benchmarks/paper_diskgnn.py runs it in its own process: `individual_packing.py DATASET RUN`, with
the case as JSON; it prints the costs of packing, without sampling, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from diskhop._native import BufferPool, File, RowReader, keyed_permutation
from diskhop.batches.trace import TraceReader, TraceSettings, TraceWriter, hash_seeds
from diskhop.budget import Budget
from diskhop.counters import PackingCounts
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.dataset.files import checksum_of
from diskhop.io.atomic import destination_errors
from diskhop.io.checksums import digest_bytes
from diskhop.io.engine import open_engine
from diskhop.io.streams import in_pieces
from diskhop.pipeline.pack_steps import lay_out_chunks
from diskhop.policies.static import most_accessed
from diskhop.protocols import Purpose, neighbor_spec
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.topology import open_topology
from diskhop.stores.packed.chunk import BLOCK_BYTES, Chunk, encode_head
from diskhop.stores.packed.packer import Packer
from diskhop.stores.packed.resident import hold_listed
from diskhop.stores.packed.segments import SharedRows
from diskhop.system.memory import default_threads
from turns import peak_rss_bytes
from workloads import SEED

_NOTHING_MERGED = -1
_READ_BYTES, _STAGING_BYTES = 1 << 20, 8 << 20
_PARTITION_BYTES, _POOL_BYTES = 64 << 20, 64 << 20
_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingCase:
    """Batches to pack, and how. held_rows: number of the most requested rows, which are not packed."""

    kind: Literal["individual", "batched"]
    fanouts: tuple[int, ...]
    batch_size: int
    num_batches: int
    held_rows: int


class _TimedPacker(Packer):
    """Batched packing that records how long it waits for partitions of the table."""

    read_seconds = 0.0

    def _read_partitions(self, *arguments: Any) -> Iterator[Any]:
        partitions = super()._read_partitions(*arguments)
        while True:
            started = time.perf_counter()
            partition = next(partitions, None)
            self.read_seconds += time.perf_counter() - started
            if partition is None:
                return
            yield partition


class _IndividualPacker(Packer):
    """Packs one batch after the other."""

    read_seconds = 0.0

    def pack_each(self, trace: TraceReader, chunks: Sequence[Chunk], path: Path) -> PackingCounts:
        """Write the chunks of a trace's batches, which share no rows, to the file at `path`."""
        started = time.perf_counter()
        counts = PackingCounts()
        table = self._table
        reader = RowReader(
            self._engine,
            self._file,
            table.num_rows,
            table.row_bytes,
            table.row_stride,
            _NOTHING_MERGED,
            _READ_BYTES,
            _STAGING_BYTES,
            self._pool,
        )
        with destination_errors(path):
            file = File(str(path), "write")
        ticket: int | None = None
        for index, chunk in enumerate(chunks):
            content = self._pool.take(chunk.end - chunk.offset)
            body = content[BLOCK_BYTES : chunk.head_bytes]
            packed_ids = self._fill_body(chunk, index, trace.node_ids(index), body, None, trace.record)
            rows = content[chunk.head_bytes :][: chunk.rows_bytes]
            began = time.perf_counter()
            _, bytes_read, _ = reader.read(packed_ids.astype(np.int64), rows.reshape(-1, table.row_bytes))
            self.read_seconds += time.perf_counter() - began
            content[chunk.head_bytes + chunk.rows_bytes :] = 0
            # The other packer also leaves out the checksum of rows in a temporary file.
            content[:BLOCK_BYTES] = encode_head(chunk, digest_bytes(body), 0)
            places, lengths = in_pieces(len(content))
            if ticket is not None:
                self._engine.wait(ticket)
            ticket = self._engine.submit_write(file, places + np.uint64(chunk.offset), lengths, content, places)
            counts.bytes_read += bytes_read
            counts.bytes_written += len(content)
        if ticket is not None:
            self._engine.wait(ticket)
        counts.seconds = time.perf_counter() - started
        return counts


def run_packing(path: Path, case: PackingCase, scratch: Path) -> dict[str, Any]:
    """Pack the first batches of the first epoch into a file in `scratch`, which is removed again.

    read_seconds: seconds of reading rows, or of waiting for reads that overlap with other work.
    """
    dataset = open_dataset(path)
    table = dataset.feature_table()
    assert table is not None
    engine, pool = open_engine().engine, BufferPool(_POOL_BYTES)
    with sampled_trace(dataset, case, engine, pool, scratch) as trace:
        access_counts = np.zeros(table.num_rows, np.uint32)
        for index in range(len(trace)):
            access_counts[trace.node_ids(index)] += 1
        held = most_accessed(access_counts, case.held_rows)
        is_held = np.zeros(table.num_rows, np.bool_)
        is_held[held] = True
        kind = _IndividualPacker if case.kind == "individual" else _TimedPacker
        rows_held = hold_listed(held, table.num_rows)
        packer = kind(table, rows_held, engine, pool, _PARTITION_BYTES, default_threads())
        shared = SharedRows(trace, is_held, 1, table, packer.partition_rows)
        chunks = lay_out_chunks(shared, trace, table.row_bytes, len(held))
        packed = scratch / "packed.bin"
        try:
            if isinstance(packer, _IndividualPacker):
                counts = packer.pack_each(trace, chunks, packed)
            else:
                counts = packer.pack(trace, chunks, packed, scratch, lambda: None, None, trace.record)
            checksum = checksum_of(packed)
        finally:
            packed.unlink(missing_ok=True)
    return {
        "seconds": counts.seconds,
        "read_seconds": packer.read_seconds,
        "bytes_read": counts.bytes_read,
        "bytes_written": counts.bytes_written,
        "bytes_needed": sum(chunk.rows_bytes for chunk in chunks),
        "batches": len(chunks),
        "checksum": checksum,
        "peak_rss_bytes": peak_rss_bytes(),
    }


@contextlib.contextmanager
def sampled_trace(
    dataset: Dataset, case: PackingCase, engine: Any, pool: BufferPool, scratch: Path
) -> Iterator[TraceReader]:
    """Sample the batches to a file in `scratch`, which is removed with the context."""
    train_ids = dataset.split_rows("train")
    assert train_ids is not None
    seeds = train_ids[keyed_permutation(len(train_ids), SEED, int(Purpose.TRAIN), 0)]
    path, numbers = scratch / "trace.bin", range(case.num_batches)
    settings = TraceSettings(
        dataset_hash=dataset.hash,
        sampler=neighbor_spec(case.fanouts),
        seed=SEED,
        purpose=Purpose.TRAIN,
        epoch=0,
        batch_size=case.batch_size,
        seeds_hash=hash_seeds(seeds),
    )
    try:
        with open_topology(dataset.topology, "memory", engine, Budget(_NO_LIMIT)) as topology:
            sampler = open_sampler(topology, settings.sampler, SEED)
            with TraceWriter(path, settings, topology.num_nodes, engine, pool, numbers) as writer:
                for number in numbers:
                    of_batch = seeds[number * case.batch_size :][: case.batch_size]
                    writer.append(sampler.sample(of_batch, purpose=Purpose.TRAIN, epoch=0, number=number))
                writer.finish()
        yield TraceReader(path, settings, engine, pool, numbers)
    finally:
        path.unlink(missing_ok=True)


def main() -> None:
    path, run = sys.argv[1:]
    document = json.loads(run)
    case = PackingCase(**{**document["case"], "fanouts": tuple(document["case"]["fanouts"])})
    print(json.dumps(run_packing(Path(path), case, Path(document["scratch"]))))


if __name__ == "__main__":
    main()
