"""Packed files, decoded here by hand, have of every batch what the table has: any table, partitions and faults."""

from __future__ import annotations

import itertools
import re
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, FaultInjector, FaultRule, why_no_uring
from diskhop.counters import PackingCounts
from diskhop.errors import DestinationError, DiskhopError, ReadError, WriteError
from diskhop.protocols import NodeIds, Table
from diskhop.stores.packed.chunk import Chunk
from diskhop.stores.packed.packer import Packer, packing_bytes
from diskhop.stores.packed.resident import hold_listed
from tests.examples import examples
from tests.graphs import memory_folder, open_paths

ENGINES = ["threads"] if why_no_uring() else ["threads", "uring"]
MIB = 1 << 20


class ListedTrace:
    """An access trace in memory."""

    def __init__(self, batches: list[NodeIds]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def node_ids(self, index: int) -> NodeIds:
        return self.batches[index]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A table, its rows (rows, row bytes), batches of ids, and the ids held, by slot."""

    table: Table
    rows: NDArray[np.uint8]
    batches: list[NodeIds]
    held: NodeIds

    def chunks(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        for index, ids in enumerate(self.batches):
            chunk = Chunk(
                offset=chunks[-1].end if chunks else 0,
                number=100 + index,
                num_nodes=len(ids),
                num_packed=len(np.setdiff1d(ids, self.held)),
                num_shared=0,
                row_bytes=self.table.row_bytes,
                slot_bytes=3,
                record_bytes=0,
            )
            chunks.append(chunk)
        return chunks


def make_case(
    folder: Path,
    num_rows: int,
    row_bytes: int,
    padding: int,
    num_batches: int,
    *,
    seed: int = 0,
    share: float = 0.3,
    held_share: float = 0.1,
) -> Case:
    """share: of the table that a batch has, at most."""
    generator = np.random.default_rng(seed)
    path = folder / "features.bin"
    raw = generator.integers(0, 256, (num_rows, row_bytes + padding), np.uint8)
    raw.tofile(path)
    table = Table(path=path, num_rows=num_rows, row_bytes=row_bytes, row_stride=row_bytes + padding)
    most = min(int(share * num_rows) + 1, num_rows)
    batches = [
        generator.choice(num_rows, generator.integers(0, most + 1), replace=False).astype(np.int64)
        for _ in range(num_batches)
    ]
    held = generator.choice(num_rows, int(held_share * num_rows), replace=False).astype(np.int64)
    return Case(table, raw[:, :row_bytes], batches, held)


def new_packer(case: Case, engine: Engine, partition_bytes: int = MIB, threads: int = 1) -> Packer:
    return Packer(
        case.table, hold_listed(case.held, case.table.num_rows), engine, BufferPool(1 << 24), partition_bytes, threads
    )


def go_on() -> None:
    """Nobody wants to stop."""


def pack(packer: Packer, case: Case, folder: Path, keep_on: Callable[[], None] = go_on) -> tuple[bytes, PackingCounts]:
    """The file that is packed, and the counts."""
    path = folder / "chunks.bin"
    path.unlink(missing_ok=True)
    counts = packer.pack(ListedTrace(case.batches), case.chunks(), path, folder, keep_on)
    return path.read_bytes(), counts


def assert_holds(case: Case, content: bytes) -> None:
    """Decode a file as documented, and look up every node of every batch."""
    place = 0
    for number, ids in enumerate(case.batches, start=100):
        head = content[place : place + 4096]
        magic, version, zeros, *fields = struct.unpack_from("<4sHH9Q", head)
        assert (magic, version, zeros) == (b"DHCK", 1, 0)
        is_packed = ~np.isin(ids, case.held)
        num_packed = int(is_packed.sum())
        assert fields[:7] == [number, len(ids), num_packed, 0, case.table.row_bytes, 3, 0]
        assert head[80:4088] == bytes(4008)
        assert struct.unpack_from("<Q", head, 4088)[0] == xxhash.xxh3_64_intdigest(head[:4088])
        low_bytes, high_bytes = (-(-count * len(ids) // 8) * 8 for count in (2, 1))
        body_bytes = -(-(low_bytes + high_bytes) // 4096) * 4096
        body = content[place + 4096 : place + 4096 + body_bytes]
        rows_place = place + 4096 + body_bytes
        rows_bytes = num_packed * case.table.row_bytes
        packed = content[rows_place : rows_place + rows_bytes]
        # A run's own file has no sums of rows.
        assert fields[7:] == [xxhash.xxh3_64_intdigest(body), 0]
        slots = np.frombuffer(body, np.uint16, len(ids)).astype(np.int64)
        slots += np.frombuffer(body, np.uint8, len(ids), low_bytes).astype(np.int64) << 16
        assert not any(body[2 * len(ids) : low_bytes])
        assert not any(body[low_bytes + len(ids) :])
        np.testing.assert_array_equal(slots < len(case.held), ~is_packed)
        np.testing.assert_array_equal(case.held[slots[~is_packed]], ids[~is_packed])
        own = slots[is_packed] - len(case.held)
        np.testing.assert_array_equal(np.sort(own), np.arange(num_packed))
        rows = np.frombuffer(packed, np.uint8).reshape(num_packed, case.table.row_bytes)
        np.testing.assert_array_equal(rows[own], case.rows[ids[is_packed]])
        np.testing.assert_array_equal(rows, case.rows[np.sort(ids[is_packed])])
        end = -(-(rows_place + rows_bytes) // 4096) * 4096
        assert content[rows_place + rows_bytes : end] == bytes(end - rows_place - rows_bytes)
        place = end
    assert len(content) == place


def bytes_of_table(case: Case, packer: Packer) -> int:
    """Count the bytes to read: the pieces of 1 MiB of each partition in which a byte of a wanted row lies."""
    stride, row_bytes = case.table.row_stride, case.table.row_bytes
    wanted = np.unique(np.concatenate([np.setdiff1d(ids, case.held) for ids in case.batches]))
    found = 0
    for first_row in range(0, case.table.num_rows, packer.partition_rows):
        end_row = min(first_row + packer.partition_rows, case.table.num_rows)
        starts = (wanted[(first_row <= wanted) & (wanted < end_row)] - first_row) * stride
        for begin in range(0, (end_row - first_row) * stride, MIB):
            end = min(begin + MIB, (end_row - first_row) * stride)
            if np.any((starts < end) & (starts + row_bytes > begin)):
                found += end - begin
    return found


def bytes_of_lists(case: Case, packer: Packer) -> int:
    """Whole blocks of 4096 bytes that a list's ids of a partition lie in, list by list."""
    found = 0
    for ids in case.batches:
        partitions = np.sort(np.setdiff1d(ids, case.held)) // packer.partition_rows
        for partition in np.unique(partitions):
            begin, end = np.searchsorted(partitions, [partition, partition + 1])
            found += -(-4 * int(end) // 4096) * 4096 - 4 * int(begin) // 4096 * 4096
    return found


def bytes_read_by_process() -> int:
    return int(re.findall(r"rchar: (\d+)", Path("/proc/self/io").read_text())[0])


@pytest.mark.fast("uring")
@pytest.mark.parametrize("engine", ENGINES)
@examples(30)
@given(
    row_bytes=st.sampled_from([1, 2, 3, 37, 100, 127, 512, 513, 1000, 4095, 4096, 4097, 5999, 6000]),
    padding=st.sampled_from([0, 0, 1, 28, 97]),
    most_rows=st.sampled_from([1, 20, 700, 9000]),
    num_batches=st.integers(1, 6),
    share=st.sampled_from([0.0, 0.01, 0.4, 1.0]),
    held_share=st.sampled_from([0.0, 0.1, 1.0]),
    partitions_bytes=st.tuples(st.sampled_from([1, 100_000]), st.sampled_from([700_000, 1 << 26])),
    threads=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
@example(1, 0, 9000, 6, 0.4, 0.1, (1, 1 << 26), 2, 0)
@example(3, 1, 9000, 6, 0.4, 0.0, (1, 100_000), 2, 0)
@example(512, 0, 9000, 6, 1.0, 0.1, (1, 700_000), 2, 0)
def test_every_chunk_has_the_rows_that_its_slots_say(
    tmp_path_factory: pytest.TempPathFactory,
    engine: str,
    row_bytes: int,
    padding: int,
    most_rows: int,
    num_batches: int,
    share: float,
    held_share: float,
    partitions_bytes: tuple[int, int],
    threads: int,
    seed: int,
) -> None:
    num_rows = max(1, min(most_rows, 4_000_000 // (row_bytes + padding)))
    with memory_folder(tmp_path_factory.getbasetemp()) as folder:
        case = make_case(
            folder, num_rows, row_bytes, padding, num_batches, seed=seed, share=share, held_share=held_share
        )
        found = []
        for partition_bytes, num_threads in zip(partitions_bytes, (1, threads), strict=True):
            packer = new_packer(case, Engine(engine, 8), partition_bytes, num_threads)
            content, counts = pack(packer, case, folder)
            found.append(content)
            assert counts.bytes_written == len(content)
            table_file_bytes = case.table.path.stat().st_size
            assert bytes_of_table(case, packer) <= counts.bytes_read < table_file_bytes + 4096
            # Again, by the same one: what is left in its buffers from before is nowhere.
            assert pack(packer, case, folder)[0] == content
        assert_holds(case, found[0])
        assert found[1] == found[0]
        assert {path.name for path in folder.iterdir()} == {"features.bin", "chunks.bin"}
        assert {*open_paths(folder)} == {str(case.table.path)}


@pytest.mark.fast(5)
@pytest.mark.parametrize("row_bytes", [MIB + 2, 2 * MIB + 1, 4 * MIB, 4 * MIB + 1, 5 * MIB + 4000])
@pytest.mark.parametrize("stride_bytes", [0, 6 * MIB])
def test_rows_larger_than_a_read_or_a_buffer_come_whole(tmp_path: Path, row_bytes: int, stride_bytes: int) -> None:
    padding = max(0, stride_bytes - row_bytes)
    with memory_folder(tmp_path) as folder:
        case = make_case(folder, 5, row_bytes, padding, 3, share=1.0, held_share=0.2)
        packer = new_packer(case, Engine("threads", 8))
        assert packer.num_partitions == (1 if case.table.row_stride % 4096 else 5)
        assert_holds(case, pack(packer, case, folder)[0])


def test_several_partitions_are_read_and_only_what_is_needed(tmp_path: Path) -> None:
    """The kernel counts every byte of the table at most once, and none of the output."""
    for num_rows, share in ((40_000, 0.0), (8000, 0.1), (20_000, 1.0)):
        case = make_case(tmp_path, num_rows, 500, 12, 7, share=share)
        packer = new_packer(case, Engine("threads", 8), 600_000)
        assert packer.num_partitions > 6
        before = bytes_read_by_process()
        counts = packer.pack(ListedTrace(case.batches), case.chunks(), tmp_path / "chunks.bin", tmp_path, go_on)
        read = bytes_read_by_process() - before
        assert counts.bytes_read == bytes_of_table(case, packer)
        # What is above is the counters' own file.
        assert 0 <= read - counts.bytes_read - bytes_of_lists(case, packer) < 1000
        assert counts.bytes_read <= num_rows * 512
        assert (counts.bytes_read < num_rows * 512 // 4) == (share == 0)


def test_what_was_in_the_file_is_written_over(tmp_path: Path) -> None:
    case = make_case(tmp_path, 3000, 100, 0, 4)
    packer = new_packer(case, Engine("threads", 8))
    expected, _ = pack(packer, case, tmp_path)
    path = tmp_path / "chunks.bin"
    path.write_bytes(b"\xa5" * len(expected))
    packer.pack(ListedTrace(case.batches), case.chunks(), path, tmp_path, go_on)
    assert path.read_bytes() == expected


@pytest.mark.parametrize("row_bytes", [1, 131, 512, 4096, 6002])
@pytest.mark.parametrize("num_rows", [1, 900, 50_000])
def test_a_packer_holds_what_it_says(tmp_path: Path, row_bytes: int, num_rows: int) -> None:
    """Two partitions of the size asked for, as far as a table of so many rows and its alignment let them be."""
    table = Table(path=tmp_path / "features.bin", num_rows=num_rows, row_bytes=row_bytes, row_stride=row_bytes)
    (tmp_path / "features.bin").touch()
    case = Case(table, np.empty((0, row_bytes), np.uint8), [], np.empty(0, np.int64))
    for partition_bytes in (1, 100_000, 1 << 26):
        packer = new_packer(case, Engine("threads", 2), partition_bytes)
        partition = min(max(partition_bytes, 4096 * row_bytes), num_rows * row_bytes + 4096)
        assert packing_bytes(table, partition_bytes) <= 2 * partition + 6 * 4 * MIB
        assert packer.num_partitions * packer.partition_rows >= num_rows
        assert (packer.num_partitions - 1) * packer.partition_rows < num_rows


@pytest.fixture
def faulty_case(tmp_path: Path) -> Case:
    """Four partitions, and chunks of several writes each."""
    return make_case(tmp_path, 1500, 1000, 24, 3, share=0.8)


def operations(case: Case, engine: str) -> dict[str, int]:
    """How many there are, by kind, without a fault."""
    counting = FaultInjector([])
    packer = new_packer(case, Engine(engine, 8, counting), 400_000)
    assert packer.num_partitions == 4
    pack(packer, case, case.table.path.parent)
    return {counted: counting.count(counted) for counted in ("reads", "writes")}


@pytest.mark.fast(3)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["short_transfer", "interrupted", "again"])
def test_every_fault_that_a_retry_cures_changes_nothing(faulty_case: Case, engine: str, kind: str) -> None:
    folder = faulty_case.table.path.parent
    expected, _ = pack(new_packer(faulty_case, Engine(engine, 8)), faulty_case, folder)
    for counted, most in operations(faulty_case, engine).items():
        assert most >= 8
        for nth in range(1, most + 1):
            injector = FaultInjector([FaultRule(kind, counted, nth)], nth)
            found, _ = pack(new_packer(faulty_case, Engine(engine, 8, injector), 400_000), faulty_case, folder)
            assert found == expected


@pytest.mark.fast(4)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("kind", "counted", "expected_error"),
    [
        ("io_error", "reads", ReadError),
        ("truncated", "reads", ReadError),
        ("io_error", "writes", WriteError),
        ("no_space", "writes", DestinationError),
    ],
)
def test_every_fault_that_none_cures_is_one_error_and_leaves_nothing_open(
    faulty_case: Case, engine: str, kind: str, counted: str, expected_error: type[DiskhopError]
) -> None:
    folder = faulty_case.table.path.parent
    expected, _ = pack(new_packer(faulty_case, Engine(engine, 8)), faulty_case, folder)
    for nth in range(1, operations(faulty_case, engine)[counted] + 1):
        injector = FaultInjector([FaultRule(kind, counted, nth)])
        packer = new_packer(faulty_case, Engine(engine, 8, injector), 400_000)
        with pytest.raises(expected_error, match=rf"^{folder}/(\.lists-)?[a-z]+\.bin: ") as told:
            pack(packer, faulty_case, folder)
        assert "\n" not in str(told.value)
        # While the error, and with it every frame, is still known. The engine keeps the file of what is in flight.
        assert {*open_paths(folder)} == {str(faulty_case.table.path)}
        assert {path.name for path in folder.iterdir()} == {"features.bin", "chunks.bin"}
        assert pack(packer, faulty_case, folder)[0] == expected
        del packer


class EnoughError(Exception):
    pass


@pytest.mark.parametrize("engine", ENGINES)
def test_who_does_not_want_it_any_more_ends_it_at_once(faulty_case: Case, engine: str) -> None:
    folder = faulty_case.table.path.parent
    packer = new_packer(faulty_case, Engine(engine, 8), 400_000)
    expected, _ = pack(packer, faulty_case, folder)
    for nth in itertools.count(1):
        calls = 0
        stopped = 0.0

        def stop(nth: int = nth) -> None:
            nonlocal calls, stopped
            calls += 1
            if calls == nth:
                stopped = time.monotonic()
                raise EnoughError

        try:
            found, _ = pack(packer, faulty_case, folder, stop)
        except EnoughError:
            assert time.monotonic() - stopped < 1
            assert calls == nth
            assert {*open_paths(folder)} == {str(faulty_case.table.path)}
            assert {path.name for path in folder.iterdir()} == {"features.bin", "chunks.bin"}
        else:
            assert found == expected
            break
    # Once a batch, then once a batch for each partition.
    assert nth == 3 + 3 * 4 + 1


def test_a_full_disk_is_one_line(small_disk: Path, tmp_path: Path) -> None:
    case = make_case(tmp_path, 3000, 1000, 0, 4, share=0.9)
    packer = new_packer(case, Engine("threads", 8))
    with pytest.raises(DestinationError, match=r"chunks\.bin: .*No space left on device; free some space"):
        packer.pack(ListedTrace(case.batches), case.chunks(), small_disk / "chunks.bin", tmp_path, go_on)
    with pytest.raises(DestinationError, match=r"lists-chunks\.bin: .*cannot be"):
        packer.pack(ListedTrace(case.batches), case.chunks(), tmp_path / "chunks.bin", tmp_path / "none", go_on)
    assert {path.name for path in tmp_path.iterdir()} == {"features.bin", "disk"}
    assert {*open_paths(tmp_path)} == {str(case.table.path)}
