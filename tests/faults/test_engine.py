"""Claims about the engine as Python sees it: bytes in place on both engines, faults cured or told, memory kept safe."""

from __future__ import annotations

import errno
import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import BufferPool, CrashError, Engine, FaultInjector, FaultRule, File, why_no_uring
from diskhop.errors import DestinationError, ReadError, WriteError
from diskhop.io.streams import TRANSFER_BYTES, SequentialWriter
from tests.examples import examples

ENGINES = [
    pytest.param("uring", marks=pytest.mark.skipif(bool(why_no_uring()), reason=f"no io_uring: {why_no_uring()}")),
    "threads",
]
FILE_BYTES = 100_000
CONTENT = np.random.default_rng(0).integers(0, 256, FILE_BYTES, np.uint8)
UNTOUCHED = 0xEE


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("engine") / "known.bin"
    path.write_bytes(CONTENT.tobytes())
    return path


def numbers(*values: int) -> NDArray[np.uint64]:
    return np.array(values, np.uint64)


def read(engine: Engine, file: File, offsets: list[int], num_bytes: list[int]) -> list[NDArray[np.uint8]]:
    """Read all in one ticket, each to a place of its own."""
    places = [0, *np.cumsum([-(-length // 4096) * 4096 for length in num_bytes]).tolist()]
    buffer = BufferPool(0).take(places[-1])
    buffer[:] = UNTOUCHED
    ticket = engine.submit_read(
        file, numbers(*offsets), numbers(*num_bytes), buffer, numbers(*places[:-1]), prefetch=len(offsets) % 2 == 0
    )
    engine.wait(ticket)
    return [buffer[place : place + length] for place, length in zip(places, num_bytes, strict=False)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("want_direct", [True, False])
@examples(40)
@given(
    ranges=st.lists(st.tuples(st.integers(0, FILE_BYTES), st.integers(0, 20_000)), max_size=12),
    aligned=st.booleans(),
    depth=st.sampled_from([1, 2, 64]),
    short=st.booleans(),
)
def test_reads_equal_the_file(
    path: Path, engine: str, want_direct: bool, ranges: list[tuple[int, int]], aligned: bool, depth: int, short: bool
) -> None:
    if aligned:
        ranges = [(offset // 512 * 512, length // 512 * 512) for offset, length in ranges]
    ranges = [(offset, min(length, FILE_BYTES - offset)) for offset, length in ranges]
    rules = [FaultRule("short_transfer", "reads", 1, once=False)] if short else []
    reader = Engine(engine, depth, FaultInjector(rules, seed=depth))
    offsets, lengths = [offset for offset, _ in ranges], [length for _, length in ranges]
    for (offset, length), got in zip(
        ranges, read(reader, File(str(path), "read", want_direct), offsets, lengths), strict=True
    ):
        np.testing.assert_array_equal(got, CONTENT[offset : offset + length])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("want_direct", [True, False])
@pytest.mark.parametrize("kind", ["io_error", "truncated", "interrupted", "again", "short_transfer"])
def test_every_fault_is_cured_or_told_at_every_operation(path: Path, engine: str, want_direct: bool, kind: str) -> None:
    file = File(str(path), "read", want_direct)
    offsets, lengths = [0, 4096, 8192, 50_001, 20_480], [4096, 512, 8192, 777, 4096]
    counter = FaultInjector([])
    read(Engine(engine, 2, counter), file, offsets, lengths)
    assert counter.count("reads") == counter.count("all") == len(offsets)
    for nth in range(1, len(offsets) + 1):
        faulty = Engine(engine, 2, FaultInjector([FaultRule(kind, "reads", nth)]))
        if kind in ("io_error", "truncated"):
            with pytest.raises(ReadError) as told:
                read(faulty, file, offsets, lengths)
            message = str(told.value)
            assert message.startswith(f"{path}: read of ")
            assert "; " in message, "the next step"
            assert "\n" not in message
            assert any(f" bytes at offset {offset} failed: " in message for offset in offsets)
        got = read(faulty, file, offsets, lengths)
        for offset, length, rows in zip(offsets, lengths, got, strict=True):
            np.testing.assert_array_equal(rows, CONTENT[offset : offset + length])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["interrupted", "again"])
def test_a_retry_that_never_helps_ends(path: Path, engine: str, kind: str) -> None:
    faulty = Engine(engine, 2, FaultInjector([FaultRule(kind, "reads", 2, once=False)]))
    with pytest.raises(ReadError, match=r"known\.bin: read of 512 bytes at offset \d+ failed, tried 1000 times"):
        read(faulty, File(str(path), "read"), [0, 512, 1024], [512, 512, 512])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("want_direct", [True, False])
def test_a_file_that_ends_too_early_names_where(path: Path, engine: str, want_direct: bool) -> None:
    file = File(str(path), "read", want_direct)
    reader = Engine(engine, 4)
    buffer = BufferPool(0).take(8192)
    start = FILE_BYTES // 4096 * 4096
    tail_bytes = FILE_BYTES - start
    reader.wait(reader.submit_read(file, numbers(start), numbers(8192), buffer, numbers(0), numbers(tail_bytes)))
    np.testing.assert_array_equal(buffer[:tail_bytes], CONTENT[start:])
    for required in (None, numbers(tail_bytes + 1)):
        with pytest.raises(ReadError, match=f"offset {start} failed: the file ends at byte {FILE_BYTES}; .*verify"):
            reader.wait(reader.submit_read(file, numbers(start), numbers(8192), buffer, numbers(0), required))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("want_direct", [True, False])
@examples(20)
@given(cuts=st.sets(st.integers(1, FILE_BYTES - 1), max_size=10), aligned=st.booleans(), seed=st.integers(0, 9))
def test_writes_in_any_pieces_make_the_file(
    tmp_path_factory: pytest.TempPathFactory, engine: str, want_direct: bool, cuts: set[int], aligned: bool, seed: int
) -> None:
    target = tmp_path_factory.mktemp("writes") / "file"
    bounds = sorted({0, FILE_BYTES} | {cut // 4096 * 4096 if aligned else cut for cut in cuts})
    rules = [FaultRule("short_transfer", "writes", seed + 1, once=False), FaultRule("again", "all", 1)]
    writer = Engine(engine, 4, FaultInjector(rules, seed))
    file = File(str(target), "write", want_direct)
    buffer = BufferPool(0).take(FILE_BYTES)
    buffer[:] = CONTENT
    buffer.flags.writeable = False
    starts, lengths = numbers(*bounds[:-1]), np.diff(np.array(bounds)).astype(np.uint64)
    writer.wait(writer.submit_write(file, starts, lengths, buffer, starts))
    writer.wait(writer.submit_fsync(file))
    assert target.read_bytes() == CONTENT.tobytes()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("kind", "counted", "error"),
    [
        ("no_space", "writes", DestinationError),
        ("io_error", "writes", WriteError),
        ("io_error", "fsyncs", WriteError),
        ("crash", "changes", CrashError),
    ],
)
def test_failed_changes_are_told(tmp_path: Path, engine: str, kind: str, counted: str, error: type[Exception]) -> None:
    target = tmp_path / "file"
    writer = Engine(engine, 4, FaultInjector([FaultRule(kind, counted, 1)]))
    file = File(str(target), "write")
    if counted == "fsyncs":
        ticket = writer.submit_fsync(file)
    else:
        ticket = writer.submit_write(file, numbers(0), numbers(10), np.zeros(10, np.uint8), numbers(0))
    with pytest.raises(error, match=str(target)):
        writer.wait(ticket)


def test_faults_outside_the_engine_are_told_by_the_same_rules() -> None:
    injector = FaultInjector([FaultRule("no_space", "writes", 2), FaultRule("crash", "renames", 1)])
    injector.check("write", "a")
    injector.check("fsync", "a")
    with pytest.raises(DestinationError, match=r"a: write failed: No space left on device"):
        injector.check("write", "a")
    for kind in ("rename", "fsync"):
        with pytest.raises(CrashError):
            injector.check(kind, "a")
    assert (injector.count("changes"), injector.count("renames")) == (5, 1)


def test_files_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        ReadError, match=r"none: cannot be opened for reading: No such file or directory; check the path"
    ):
        File(str(tmp_path / "none"), "read")
    with pytest.raises(ReadError, match="is not a regular file"):
        File(str(tmp_path), "read")
    with pytest.raises(DestinationError, match="cannot be opened for writing"):
        File(str(tmp_path / "no" / "folder"), "write")
    with pytest.raises(ValueError, match="mode 'append' is not one of: read, write"):
        File(str(tmp_path / "none"), "append")  # type: ignore[arg-type]


def test_transfers_outside_the_buffer_are_refused(path: Path) -> None:
    engine, file, buffer = Engine("threads", 1), File(str(path), "read"), np.zeros(100, np.uint8)
    for place, length in ((0, 101), (100, 1), (2**64 - 1, 2), (1, 2**64 - 1)):
        with pytest.raises(IndexError, match="does not fit the buffer of 100 bytes"):
            engine.submit_read(file, numbers(0), numbers(length), buffer, numbers(place))
    with pytest.raises(ValueError, match="one length each"):
        engine.submit_read(file, numbers(0, 1), numbers(1), buffer, numbers(0))
    with pytest.raises(TypeError):  # converted, it would be a copy that nobody sees
        engine.submit_read(file, numbers(0), numbers(1), buffer.astype(np.int64), numbers(0))
    with pytest.raises(ValueError, match="ticket 12345 is unknown"):
        engine.wait(12345)


@pytest.mark.parametrize("engine", ENGINES)
def test_buffers_and_files_live_until_waited_for(path: Path, engine: str) -> None:
    pool = BufferPool(64 << 20)
    reader = Engine(engine, 1)
    tickets = []
    for _ in range(50):
        place = numbers(0)
        tickets.append(reader.submit_read(File(str(path), "read"), place, numbers(4096), pool.take(4096), place))
    gc.collect()
    assert pool.free_bytes == 0, "arrays that reads go to are not free"
    for ticket in tickets:
        reader.wait(ticket)
    gc.collect()
    assert pool.free_bytes > 0


def test_pool_arrays_outlive_their_pool() -> None:
    pool = BufferPool(8 << 20)
    array = pool.take(5000)
    assert array.shape == (5000,)
    assert array.dtype == np.uint8
    assert array.ctypes.data % (2 << 20) == 0
    view = array[100:200]
    del array, pool
    gc.collect()
    view[:] = 1
    assert view.sum() == 100
    assert BufferPool(0).take(0).shape == (0,)


@pytest.mark.parametrize("engine", ENGINES)
def test_threads_share_an_engine(path: Path, engine: str) -> None:
    reader = Engine(engine, 8)
    file = File(str(path), "read")
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(30):
            offsets = (rng.integers(0, FILE_BYTES // 512 - 8, 20) * 512).tolist()
            for offset, got in zip(offsets, read(reader, file, offsets, [4096] * 20), strict=True):
                if not np.array_equal(got, CONTENT[offset : offset + 4096]):
                    wrong.append(offset)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), "a wait hangs"
    assert wrong == []


@pytest.mark.parametrize("engine", ENGINES)
def test_what_the_system_refuses_is_told(path: Path, engine: str) -> None:
    file = File(str(path), "read")
    writer = Engine(engine, 1)
    with pytest.raises(WriteError, match=os.strerror(errno.EBADF)):
        writer.wait(writer.submit_write(file, numbers(0), numbers(1), np.zeros(1, np.uint8), numbers(0)))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("offset", [2**63 - 1, 2**63, 2**64 - 4096, 2**64 - 1])
def test_offsets_past_every_file_are_refused(path: Path, engine: str, offset: int) -> None:
    reader = Engine(engine, 2)
    for want_direct in (True, False):
        file = File(str(path), "read", want_direct)
        with pytest.raises(ValueError, match=rf"known\.bin: read of 100 bytes at offset {offset} ends past 2\^63 - 1"):
            reader.submit_read(file, numbers(offset), numbers(100), np.zeros(100, np.uint8), numbers(0))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_read_of_nothing_in_particular_is_refused(path: Path, engine: str) -> None:
    reader, file = Engine(engine, 2), File(str(path), "read")
    with pytest.raises(ValueError, match="must require at least one of them"):
        reader.submit_read(file, numbers(0), numbers(10), np.zeros(10, np.uint8), numbers(0), numbers(0))


@pytest.mark.parametrize("engine", ENGINES)
def test_paths_of_any_bytes_are_opened_and_told(tmp_path: Path, engine: str) -> None:
    target = tmp_path / os.fsdecode(b"caf\xe9-\xff.bin")
    target.write_bytes(CONTENT.tobytes())
    file = File(str(target), "read")
    assert file.path == str(target)
    reader = Engine(engine, 2)
    np.testing.assert_array_equal(read(reader, file, [512], [600])[0], CONTENT[512:1112])
    with pytest.raises(ReadError) as told:
        read(reader, file, [FILE_BYTES], [1])
    assert str(told.value).startswith(f"{target}: read of 1 bytes")
    with pytest.raises(ReadError, match="cannot be opened") as told:
        File(f"{target}.none", "read")
    assert str(told.value).startswith(f"{target}.none: ")


def test_paths_with_a_null_character_are_refused(path: Path) -> None:
    for mode, error in (("read", ReadError), ("write", DestinationError)):
        with pytest.raises(error, match=r"known\.bin: a path cannot contain a null character; "):
            File(f"{path}\0x", mode)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ENGINES)
def test_files_written_from_the_start_are_whole_and_on_the_disk(tmp_path: Path, engine: str) -> None:
    target = tmp_path / "file"
    writer, pool = Engine(engine, 16), BufferPool(16 << 20)
    rng = np.random.default_rng(0)
    content = rng.integers(0, 256, 2 * TRANSFER_BYTES + 5000, np.uint8)
    lengths = [0, 1, 4095, 4096, 4097, TRANSFER_BYTES, TRANSFER_BYTES + 1, len(content), *rng.integers(1, 200_000, 400)]
    for length in map(int, lengths):
        # The file is there already, half the time: its pages are in the page cache, where a direct write meets them.
        if rng.random() < 0.5:
            target.unlink(missing_ok=True)
        with SequentialWriter(target, writer, pool) as stream:
            for part in np.array_split(content[:length], 3):
                stream.append(part)
            stream.finish()
        file = File(str(target), "write")
        writer.wait(writer.submit_fsync(file))
        with target.open("rb") as written:
            assert written.read(length) == content[:length].tobytes()
