"""Claims about traces: what was appended is read, also while more comes, and nothing else ever is."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from diskhop._native import BufferPool, Engine, FaultInjector, FaultRule, File, why_no_uring
from diskhop.batches.record import describe_batch, encode_batch
from diskhop.batches.trace import TraceReader, TraceSettings, TraceWriter, hash_seeds, reader_bytes, writer_bytes
from diskhop.errors import ConfigError, DestinationError, FormatError, ReadError
from diskhop.protocols import Purpose, SampledBatch, neighbor_spec
from tests.examples import examples
from tests.graphs import memory_folder, threads_engine
from tests.unit.batches import batches, large_batch, small_batch
from tests.unit.sampling_oracle import assert_same_batch

ENGINES = ["threads"] if why_no_uring() else ["threads", "uring"]
SETTINGS = TraceSettings(
    dataset_hash="00c0ffee00c0ffee",
    sampler=neighbor_spec((10, -1)),
    seed=2**64 - 1,
    purpose=Purpose.TRAIN,
    epoch=3,
    batch_size=1000,
    seeds_hash=hash_seeds(np.arange(5)),
)
NUM_NODES = 2**31
# Of the batches of a trace, unless a test says otherwise.
NUMBERS = range(7, 107)


def write(path: Path, sampled: list[SampledBatch], engine: Engine | None = None, num_nodes: int = NUM_NODES) -> int:
    """Write a trace of batches whose numbers are replaced by 7, 8, ...; returns its length."""
    with TraceWriter(path, SETTINGS, num_nodes, engine or threads_engine(), BufferPool(1 << 24), NUMBERS) as writer:
        for index, batch in enumerate(sampled):
            writer.append(dataclasses.replace(batch, number=7 + index))
        writer.finish()
        assert len(writer) == len(sampled)
        return writer.num_bytes


def open_trace(
    path: Path, engine: Engine | None = None, wanted: TraceSettings = SETTINGS, numbers: Sequence[int] = NUMBERS
) -> TraceReader:
    return TraceReader(path, wanted, engine or threads_engine(), BufferPool(1 << 24), numbers)


def assert_holds(reader: TraceReader, sampled: list[SampledBatch]) -> None:
    assert len(reader) == len(sampled)
    for index in reversed(range(len(sampled))):
        np.testing.assert_array_equal(reader.node_ids(index), sampled[index].row_ids)
        assert_same_batch(reader.batch(index), dataclasses.replace(sampled[index], number=7 + index))


def signed(block: bytes) -> bytes:
    return block[:4088] + struct.pack("<Q", xxhash.xxh3_64_intdigest(block[:4088]))


@pytest.mark.parametrize("engine", ENGINES)
@examples(25)
@given(
    cases=st.lists(batches(), max_size=4),
    sizes=st.lists(st.integers(1, 3000), max_size=3),
    short=st.booleans(),
    seed=st.integers(0, 99),
)
def test_batches_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory,
    engine: str,
    cases: list[tuple[SampledBatch, int]],
    sizes: list[int],
    short: bool,
    seed: int,
) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.bin"
    sampled = [batch for batch, _ in cases] + [large_batch(0, size, seed) for size in sizes]
    num_nodes = max([1, *(num_nodes for _, num_nodes in cases)])
    rules = [FaultRule("short_transfer", "all", 1, once=False), FaultRule("interrupted", "all", 2)]
    injected = Engine(engine, 4, FaultInjector(rules if short else [], seed))
    assert write(path, sampled, injected, num_nodes) == path.stat().st_size
    assert_holds(open_trace(path, injected), sampled)


def test_the_file_is_laid_out_as_documented(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    sampled = [small_batch(), large_batch(0, 1000), small_batch()]
    write(path, sampled)
    text = json.dumps(
        {
            "batch_size": 1000,
            "dataset_hash": "00c0ffee00c0ffee",
            "epoch": 3,
            "fanouts": [10, -1],
            "purpose": "train",
            "seed": 2**64 - 1,
            "seeds_hash": f"{xxhash.xxh3_64_intdigest(np.arange(5, dtype='<i8').tobytes()):016x}",
        },
        separators=(",", ":"),
    ).encode()
    header = b"DHTR" + struct.pack("<HHQQ", 1, 0, 7, len(text)) + text
    expected = signed(header.ljust(4096, b"\0"))
    for index, batch in enumerate(sampled):
        record = encode_batch(dataclasses.replace(batch, number=7 + index), NUM_NODES)
        expected += record.ljust(-(-len(record) // 4096) * 4096, b"\0")
    assert path.read_bytes() == expected


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_every_flipped_bit_is_refused_or_harmless(tmp_path: Path, every: int) -> None:
    path = tmp_path / "trace.bin"
    sampled = [small_batch(), large_batch(0, 300), small_batch()]
    write(path, sampled)
    intact = path.read_bytes()
    records = [len(encode_batch(batch, NUM_NODES)) for batch in sampled]
    assert 4096 < records[1] < 3 * 4096
    starts = np.cumsum([4096, *(-(-length // 4096) * 4096 for length in records)]).tolist()
    meaning = {*range(4096)}
    for start, length in zip(starts[:-1], records, strict=True):
        meaning |= {*range(start, start + length)}
    # Every bit where most of the words are, then one bit of every nineteenth byte, padding included.
    flips = [(place, bit) for start in starts[:-1] for place in range(start, start + 72) for bit in range(8)]
    flips += [(place, place % 8) for place in range(0, len(intact), 19)]
    engine, pool = threads_engine(), BufferPool(1 << 24)
    for place, bit in flips[::every]:
        damaged = bytearray(intact)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        if place in meaning:
            with pytest.raises(FormatError) as told:
                read_all(TraceReader(path, SETTINGS, engine, pool, NUMBERS))
            assert str(told.value).startswith(f"{path}: ")
            assert "\n" not in str(told.value)
        else:
            assert_holds(TraceReader(path, SETTINGS, engine, pool, NUMBERS), sampled)


def read_all(reader: TraceReader) -> None:
    for index in range(3):
        reader.node_ids(index)
        reader.batch(index)


def test_damage_behind_the_ids_leaves_the_ids(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    batch = large_batch(7, 3000)
    write(path, [batch])
    content = bytearray(path.read_bytes())
    content[4096 + describe_batch(batch, NUM_NODES).prefix_bytes + 5000] ^= 1
    path.write_bytes(content)
    reader = open_trace(path)
    np.testing.assert_array_equal(reader.node_ids(0), batch.row_ids)
    with pytest.raises(FormatError, match=r"trace\.bin: record 0: sampled batch: damaged: its checksum"):
        reader.batch(0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"dataset_hash": "00c0ffee00c0ffef"}, "its dataset_hash is 00c0ffee00c0ffee, not 00c0ffee00c0ffef"),
        ({"sampler": neighbor_spec((10, 5))}, r"its fanouts is \[10, -1\], not \[10, 5\]"),
        ({"seed": 4}, "its seed is 18446744073709551615, not 4"),
        ({"purpose": Purpose.VALID}, "its purpose is train, not valid"),
        ({"epoch": 2}, "its epoch is 3, not 2"),
        ({"batch_size": 100}, "its batch_size is 1000, not 100"),
        ({"seeds_hash": hash_seeds(np.arange(4))}, "its seeds_hash is [0-9a-f]{16}, not [0-9a-f]{16}"),
    ],
)
def test_a_trace_of_other_settings_is_refused(tmp_path: Path, change: dict[str, object], told: str) -> None:
    path = tmp_path / "trace.bin"
    write(path, [small_batch()])
    wanted = dataclasses.replace(SETTINGS, **change)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match=rf"trace\.bin: is the trace of other batches: {told}; remove it"):
        open_trace(path, wanted=wanted)
    names = {field.name for field in dataclasses.fields(SETTINGS)} - {"sampler"} | {"fanouts"}
    assert set(json.loads(path.read_bytes()[24:].split(b"\0")[0])) == names


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    write(path, [small_batch()])
    block = path.read_bytes()[:4096]
    for content, told in (
        (b"", "no trace or a truncated one: 0 bytes"),
        (block[:4095], "truncated one: 4095 bytes"),
        (b"\x93NUMPY" + bytes(5000), "is no trace: it does not start with 'DHTR'; remove it"),
        (block[:4] + b"\2" + block[5:], "version 2, this diskhop reads version 1"),
        (signed(block[:24] + b"!" + block[25:]), "its settings are not a JSON object"),
        (signed(block[:16] + struct.pack("<Q", 0) + block[24:]), "its settings are not a JSON object"),
    ):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=rf"trace\.bin: .*{told}"):
            open_trace(path)
    with pytest.raises(ReadError, match="none: cannot be opened"):
        open_trace(tmp_path / "none")


def test_batches_in_any_order_come_back_in_it_to_who_names_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    order = [9, 7, 12, 8]
    sampled = [large_batch(number, 100 * number) for number in order]
    with TraceWriter(path, SETTINGS, NUM_NODES, threads_engine(), BufferPool(1 << 24), order) as writer:
        for batch in sampled[:3]:
            writer.append(batch)
        with pytest.raises(ConfigError, match="its next batch is number 8, got number 10"):
            writer.append(large_batch(10, 5))
        writer.append(sampled[3])
        with pytest.raises(ConfigError, match=r"trace\.bin: it has all its 4 batches, got number 10"):
            writer.append(large_batch(10, 5))
        writer.finish()
    reader = open_trace(path, numbers=order)
    for index, batch in enumerate(sampled):
        assert_same_batch(reader.batch(index), batch)
    for other, told in (
        ([7, 8, 9, 12], r"is the trace of other batches: its first number is 9, not 7"),
        ([9, 7, 8, 12], r"record 2: damaged: its number is 12, not 8"),
        ([9, 7, 12], r"record 3: exceeds the 3 batches of this trace"),
    ):
        with pytest.raises(FormatError, match=rf"trace\.bin: {told}; remove it"):
            open_trace(path, numbers=other)


def test_records_in_the_wrong_order_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    write(path, [small_batch(), small_batch()])
    content = path.read_bytes()
    path.write_bytes(content[:4096] + content[8192:] + content[4096:8192])
    with pytest.raises(FormatError, match=r"trace\.bin: record 0: damaged: its number is 8, not 7"):
        open_trace(path)


def test_only_whole_records_of_a_truncated_trace_are_there(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    sampled = [small_batch(), large_batch(0, 1000), small_batch()]
    length = write(path, sampled)
    content = path.read_bytes()
    starts = [4096, 8192, length - 4096, length]
    for cut in sorted({start + step for start in starts for step in (-1, 0, 1, 100, 4095)} | {20_000}):
        path.write_bytes(content[:cut])
        if cut < 4096:
            continue
        num_whole = sum(end <= cut for end in starts[1:])
        reader = open_trace(path)
        assert_holds(reader, sampled[:num_whole])
        for index in (num_whole, -1):
            told = (
                rf"trace\.bin: has no record {index}, only {num_whole} complete ones.*{min(cut, length)};.* truncated"
            )
            with pytest.raises(FormatError, match=told):
                reader.node_ids(index)
    reader = open_trace(path)
    path.write_bytes(content[:9000])
    with pytest.raises(FormatError, match=r"trace\.bin: record 1: truncated: the file ends at byte 9000"):
        reader.batch(1)


def test_batches_out_of_turn_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    with TraceWriter(path, SETTINGS, NUM_NODES, threads_engine(), BufferPool(0), NUMBERS) as writer:
        for number in (6, 8):
            with pytest.raises(ConfigError, match=rf"trace\.bin: its next batch is number 7, got number {number}"):
                writer.append(dataclasses.replace(small_batch(), number=number))
        writer.append(dataclasses.replace(small_batch(), number=7))
        with pytest.raises(ConfigError, match="its next batch is number 8, got number 7"):
            writer.append(dataclasses.replace(small_batch(), number=7))
        writer.finish()
    assert_holds(open_trace(path), [small_batch()])


def test_places_and_settings_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "none" / "trace.bin"
    with pytest.raises(DestinationError, match=f"{path}: cannot be opened for writing"):
        TraceWriter(path, SETTINGS, NUM_NODES, threads_engine(), BufferPool(0), NUMBERS)
    many = dataclasses.replace(SETTINGS, sampler=neighbor_spec((1,) * 3000))
    with pytest.raises(ConfigError, match=r"settings must fit 4064 bytes, got 6\d+; use fewer fan-outs"):
        TraceWriter(tmp_path / "trace.bin", many, NUM_NODES, threads_engine(), BufferPool(0), NUMBERS)
    assert not any(tmp_path.iterdir())


def test_a_trace_takes_the_place_of_another_without_disturbing_who_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    before, after = [large_batch(0, 1000), small_batch()], [small_batch()]
    write(path, before)
    reader = open_trace(path)
    write(path, after)
    assert_holds(reader, before)
    assert_holds(open_trace(path), after)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_reader_follows_a_writer(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "trace.bin"
    sampled = [large_batch(7 + index, 500 * index + 1) for index in range(5)]
    with TraceWriter(path, SETTINGS, NUM_NODES, Engine(engine, 4), BufferPool(1 << 24), NUMBERS) as writer:
        reader = open_trace(path, Engine(engine, 4))
        for index, batch in enumerate(sampled):
            writer.append(batch)
            writer.finish()
            assert len(reader) == index
            reader.refresh()
            assert_holds(reader, sampled[: index + 1])


FOLLOWER = """
import sys, time
from pathlib import Path
import numpy as np
from diskhop._native import BufferPool, Engine
from diskhop.batches.trace import TraceReader
from tests.unit.batches import large_batch
from tests.unit.test_trace import FOLLOWED, NUMBERS, SETTINGS
from tests.unit.sampling_oracle import assert_same_batch

reader = TraceReader(Path(sys.argv[1]), SETTINGS, Engine(sys.argv[2], 4), BufferPool(1 << 24), NUMBERS)
print("open", flush=True)
seen = 0
while seen < len(FOLLOWED):
    reader.refresh()
    for index in range(seen, len(reader)):
        expected = large_batch(7 + index, FOLLOWED[index])
        np.testing.assert_array_equal(reader.node_ids(index), expected.row_ids)
        assert_same_batch(reader.batch(index), expected)
    if seen < len(reader):
        seen = len(reader)
        print(seen, flush=True)
"""
# Nodes of each batch: records from one block to 6 MB.
FOLLOWED = [1 + 37 * index**2 % 200_000 for index in range(1, 60)]
_WAITS_AFTER = 12


@pytest.mark.fast(2)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("short", "in_memory"), [(False, False), (True, False), (False, True)])
def test_another_process_never_sees_a_torn_record(tmp_path: Path, engine: str, short: bool, in_memory: bool) -> None:
    folder = memory_folder(tmp_path) if in_memory else contextlib.nullcontext(tmp_path)
    injector = FaultInjector([FaultRule("short_transfer", "writes", 1, once=False)] if short else [], 0)
    with (
        folder as place,
        TraceWriter(
            path := place / "trace.bin", SETTINGS, NUM_NODES, Engine(engine, 4, injector), BufferPool(1 << 24), NUMBERS
        ) as writer,
    ):
        root = Path(__file__).parents[2]
        command = [sys.executable, "-c", FOLLOWER, str(path), engine]
        with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as follower:
            limit = threading.Timer(120, follower.kill)
            limit.start()
            try:
                assert follower.stdout is not None
                assert follower.stdout.readline() == "open\n"
                for index, num_nodes in enumerate(FOLLOWED):
                    writer.append(large_batch(7 + index, num_nodes))
                    if (index + 1) % _WAITS_AFTER == 0 or index + 1 == len(FOLLOWED):
                        # However slow the machine, what is written from here on is written while the other reads.
                        writer.finish()
                        seen = 0
                        while seen < index + 1:
                            line = follower.stdout.readline()
                            assert line, "the follower ended"
                            seen = int(line)
                follower.wait(timeout=60)
            finally:
                limit.cancel()
                follower.kill()
    assert follower.returncode == 0


def test_node_ids_read_their_share_alone(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    batch = large_batch(7, 100_000)
    header = describe_batch(batch, NUM_NODES)
    assert header.prefix_bytes < header.num_bytes / 5
    write(path, [batch] * 3)
    reader = open_trace(path)

    def bytes_read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = bytes_read()
    reader.node_ids(1)
    assert header.prefix_bytes <= bytes_read() - before <= header.prefix_bytes + 3 * 4096
    before = bytes_read()
    open_trace(path)
    assert bytes_read() - before <= (1 + 3 + 3) * 4096, "the header, a block of each record, and what asking costs"


def test_nothing_goes_through_the_page_cache(tmp_path: Path) -> None:
    """Memory of the page cache would count against the user's control group."""
    path = tmp_path / "trace.bin"
    num_bytes = write(path, [large_batch(0, 10_000)] * 3)
    file = File(str(path), "read")
    if not file.direct:
        pytest.skip("this file system has no direct I/O")
    for index in range(3):
        open_trace(path).batch(index)
    mapping = np.memmap(path, np.uint8, "r")
    assert num_bytes % file.offset_alignment == 0
    assert resident_pages(mapping) == 0


def resident_pages(mapping: np.memmap[tuple[int], np.dtype[np.uint8]]) -> int:
    pages = (ctypes.c_ubyte * -(-len(mapping) // 4096))()
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.c_void_p(mapping.ctypes.data)
    assert libc.mincore(address, ctypes.c_size_t(len(mapping)), pages) == 0
    return sum(page & 1 for page in pages)


def test_memory_is_what_the_caller_reserves(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    batch = large_batch(0, 150_000)
    record_bytes = describe_batch(batch, NUM_NODES).num_bytes
    assert record_bytes > 4 << 20
    write_pool, read_pool = BufferPool(1 << 30), BufferPool(1 << 30)
    with TraceWriter(path, SETTINGS, NUM_NODES, threads_engine(), write_pool, range(5)) as writer:
        for number in range(5):
            writer.append(dataclasses.replace(batch, number=number))
        writer.finish()
    # All that was ever taken is free now; the header took a page.
    assert write_pool.free_bytes == writer_bytes(record_bytes) + 4096
    reader = TraceReader(path, SETTINGS, threads_engine(), read_pool, range(5))
    for index in range(5):
        assert reader.batch(index).num_bytes == batch.num_bytes
    batch_bytes = -(-batch.num_bytes // (2 << 20)) * (2 << 20)
    assert read_pool.free_bytes == reader_bytes(record_bytes) + batch_bytes + 4096
