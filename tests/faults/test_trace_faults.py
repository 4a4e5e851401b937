"""Claims about traces on disks that fail or fill up: one clear error, and what was whole stays readable."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from diskhop._native import BufferPool, CrashError, Engine, FaultInjector, FaultRule, why_no_uring
from diskhop.batches.trace import TraceReader, TraceSettings, TraceWriter
from diskhop.errors import DestinationError, ReadError, WriteError
from diskhop.protocols import Purpose, SampledBatch, neighbor_spec
from tests.graphs import threads_engine
from tests.unit.batches import large_batch
from tests.unit.sampling_oracle import assert_same_batch

ENGINES = ["threads"] if why_no_uring() else ["threads", "uring"]
SETTINGS = TraceSettings(
    dataset_hash="0",
    sampler=neighbor_spec((30,)),
    seed=0,
    purpose=Purpose.TRAIN,
    epoch=0,
    batch_size=10,
    seeds_hash="0",
)
NUMBERS = range(100)
BATCHES = [large_batch(number, 1000 * number + 100) for number in range(4)]


def faulty(engine: str, kind: str, counted: str, nth: int) -> Engine:
    return Engine(engine, 4, FaultInjector([FaultRule(kind, counted, nth)]))


def new_writer(path: Path, engine: Engine) -> TraceWriter:
    return TraceWriter(path, SETTINGS, 2**31, engine, BufferPool(1 << 24), NUMBERS)


def new_reader(path: Path, engine: Engine | None = None) -> TraceReader:
    return TraceReader(path, SETTINGS, engine or threads_engine(), BufferPool(1 << 24), NUMBERS)


def assert_holds(path: Path, expected: list[SampledBatch]) -> None:
    reader = new_reader(path)
    assert len(reader) == len(expected)
    for index, batch in enumerate(expected):
        assert_same_batch(reader.batch(index), batch)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("kind", "error"), [("no_space", DestinationError), ("io_error", WriteError)])
def test_a_failed_write_leaves_the_whole_records(
    tmp_path: Path, engine: str, kind: str, error: type[Exception]
) -> None:
    path = tmp_path / "trace.bin"
    # The first write is the header's.
    with pytest.raises(error, match=str(path)):
        new_writer(path, faulty(engine, kind, "writes", 1))
    for num_whole in range(len(BATCHES)):
        with new_writer(path, faulty(engine, kind, "writes", num_whole + 2)) as writer:
            with pytest.raises(error) as told:
                append_all(writer, BATCHES)
            assert str(path) in str(told.value)
            assert "\n" not in str(told.value)
            assert (len(writer), writer.num_bytes) == (num_whole, path.stat().st_size)
            writer.finish()
            assert_holds(path, BATCHES[:num_whole])
            # With space again it goes on where it was.
            append_all(writer, BATCHES[num_whole:])
            assert writer.num_bytes == path.stat().st_size
        assert_holds(path, BATCHES)


def append_all(writer: TraceWriter, batches: Iterable[SampledBatch]) -> None:
    for batch in batches:
        writer.append(batch)
    writer.finish()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_full_disk_keeps_what_fitted(small_disk: Path, engine: str) -> None:
    path = small_disk / "trace.bin"
    with new_writer(path, Engine(engine, 4)) as writer:
        fitting = (large_batch(number, 3000) for number in range(100))
        with pytest.raises(DestinationError, match=f"{path}: .*No space left on device"):
            append_all(writer, fitting)
        num_whole = len(writer)
        assert 0 < num_whole < 15
        # The one that did not fit is told of with the next: neither is there.
        assert next(fitting).number == num_whole + 2
        writer.finish()
        assert writer.num_bytes == path.stat().st_size
        assert_holds(path, [large_batch(index, 3000) for index in range(num_whole)])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_disk_without_room_for_the_header_is_told(small_disk: Path, engine: str) -> None:
    (small_disk / "full").write_bytes(bytes((1 << 20) - 4096))
    (small_disk / "fuller").write_bytes(b"1")
    with pytest.raises(DestinationError, match=r"trace\.bin: .*No space left on device"):
        new_writer(small_disk / "trace.bin", Engine(engine, 4))


def append_and_leave(writer: TraceWriter, batches: list[SampledBatch]) -> None:
    with writer:
        for batch in batches:
            writer.append(batch)
        raise KeyError


def test_leaving_early_waits_for_the_record_on_its_way(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    with pytest.raises(KeyError):
        append_and_leave(new_writer(path, threads_engine()), BATCHES[:1])
    assert_holds(path, BATCHES[:1])


def test_leaving_early_keeps_its_own_error_before_that_of_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    with pytest.raises(KeyError):
        append_and_leave(new_writer(path, faulty("threads", "no_space", "writes", 3)), BATCHES[:2])
    assert_holds(path, BATCHES[:1])


@pytest.mark.parametrize("engine", ENGINES)
def test_leaving_early_cuts_off_what_did_not_fit(small_disk: Path, engine: str) -> None:
    path = small_disk / "trace.bin"
    too_large = large_batch(1, 60_000)
    with pytest.raises(KeyError):
        append_and_leave(new_writer(path, Engine(engine, 4)), [BATCHES[0], too_large])
    assert path.stat().st_size == 4096 + 4096
    assert_holds(path, BATCHES[:1])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_crash_leaves_whole_records(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "trace.bin"
    writer = new_writer(path, faulty(engine, "crash", "changes", 4))
    with pytest.raises(CrashError):
        append_all(writer, BATCHES)
    assert_holds(path, BATCHES[:2])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["io_error", "truncated"])
def test_a_failed_read_is_told_and_never_becomes_data(tmp_path: Path, engine: str, kind: str) -> None:
    path = tmp_path / "trace.bin"
    with new_writer(path, threads_engine()) as writer:
        append_all(writer, BATCHES)
    num_opening = 1 + len(BATCHES)
    for nth in range(1, num_opening + 1):
        with pytest.raises(ReadError, match=r"trace\.bin: read of 4096 bytes at offset \d+ failed"):
            new_reader(path, faulty(engine, kind, "reads", nth))
    reader = new_reader(path, faulty(engine, kind, "reads", num_opening + 1))
    with pytest.raises(ReadError, match=r"trace\.bin: read of"):
        reader.batch(2)
    assert_same_batch(reader.batch(2), BATCHES[2])
