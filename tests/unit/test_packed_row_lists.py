"""Lists of rows on the disk while a span is packed: each part comes back as it was added, or there is an error."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import BufferPool, Engine, FaultInjector, FaultRule, why_no_uring
from diskhop.errors import DestinationError, ReadError, WriteError
from diskhop.stores.packed.row_lists import ListsOfPartition, RowLists, list_bytes
from tests.examples import examples
from tests.graphs import memory_folder, open_paths

ENGINES = ["threads"] if why_no_uring() else ["threads", "uring"]
IdList = tuple[NDArray[np.uint32], NDArray[np.int64]]


def new_lists(path: Path, engine: str = "threads", injector: FaultInjector | None = None) -> RowLists:
    return RowLists(path, Engine(engine, 4, injector), BufferPool(1 << 22))


def random_list(num_ids: int, num_partitions: int, seed: int) -> IdList:
    """Ids and bounds of parts, some of them empty."""
    generator = np.random.default_rng(seed)
    cuts = np.sort(generator.integers(0, num_ids + 1, num_partitions - 1))
    ids = generator.integers(0, 2**32, num_ids, dtype=np.uint32)
    return ids, np.concatenate([[0], cuts, [num_ids]]).astype(np.int64)


def assert_part(lists: ListsOfPartition, expected: list[IdList], partition: int) -> None:
    for (ids, bounds), begin, count in zip(expected, lists.begins, lists.counts, strict=True):
        np.testing.assert_array_equal(lists.ids[begin : begin + count], ids[bounds[partition] : bounds[partition + 1]])


@pytest.mark.parametrize("engine", ENGINES)
@examples(40)
@given(
    lengths=st.lists(st.sampled_from([0, 0, 1, 7, 1000, 1023, 1024, 1025, 5000]), max_size=9),
    num_partitions=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_parts_come_back_two_on_their_way_at_once(
    tmp_path_factory: pytest.TempPathFactory, engine: str, lengths: list[int], num_partitions: int, seed: int
) -> None:
    expected = [random_list(length, num_partitions, seed + index) for index, length in enumerate(lengths)]
    with memory_folder(tmp_path_factory.getbasetemp()) as folder:
        lists = new_lists(folder / "lists.bin", engine)
        for ids, bounds in expected:
            lists.add(ids, bounds)
        lists.finish()
        assert len(lists) == len(expected)
        assert (folder / "lists.bin").stat().st_size == sum(list_bytes(length) for length in lengths)
        on_its_way = lists.begin(0)
        for partition in range(num_partitions):
            following = lists.begin((partition + 1) % num_partitions)
            lists.wait(on_its_way)
            assert_part(on_its_way, expected, partition)
            on_its_way = following
        lists.leave(on_its_way)
        lists.close()
        assert not list(folder.iterdir())
        assert not open_paths(folder)


@pytest.mark.parametrize("kind", ["short_transfer", "interrupted", "again"])
def test_curable_faults_change_nothing(tmp_path: Path, kind: str) -> None:
    expected = [random_list(3000, 3, seed) for seed in range(5)]
    for nth in range(1, 9):
        rules = [FaultRule(kind, counted, nth) for counted in ("reads", "writes")]
        lists = new_lists(tmp_path / "lists.bin", injector=FaultInjector(rules, nth))
        for ids, bounds in expected:
            lists.add(ids, bounds)
        lists.finish()
        for partition in range(3):
            wanted = lists.begin(partition)
            lists.wait(wanted)
            assert_part(wanted, expected, partition)
        lists.close()


def test_every_changed_byte_of_an_id_is_told(tmp_path: Path) -> None:
    path = tmp_path / "lists.bin"
    lists = new_lists(path)
    expected = [random_list(60, 4, 1), random_list(1100, 4, 2)]
    for ids, bounds in expected:
        lists.add(ids, bounds)
    lists.finish()
    intact = path.read_bytes()
    for (ids, bounds), offset in zip(expected, (0, 4096), strict=True):
        for place in itertools.chain(range(0, ids.nbytes, 13), [ids.nbytes - 1]):
            damaged = bytearray(intact)
            damaged[offset + place] ^= 1 << place % 8
            path.write_bytes(damaged)
            of_place = int(np.searchsorted(bounds, place // 4, side="right")) - 1
            for partition in range(4):
                wanted = lists.begin(partition)
                if partition == of_place:
                    told = f"{path}: damaged: ids after offset {offset} are not those that were written; check the disk"
                    with pytest.raises(ReadError, match=re.escape(told)):
                        lists.wait(wanted)
                else:
                    lists.wait(wanted)
                    assert_part(wanted, expected, partition)
    lists.close()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("kind", "error"), [("no_space", DestinationError), ("io_error", WriteError)])
def test_a_write_that_fails_is_told_and_leaves_nothing(
    tmp_path: Path, engine: str, kind: str, error: type[Exception]
) -> None:
    path = tmp_path / "lists.bin"
    ids, bounds = random_list(3000, 3, 0)
    for nth in range(1, 7):
        lists = new_lists(path, engine, FaultInjector([FaultRule(kind, "writes", nth)]))

        def write_six(lists: RowLists = lists) -> None:
            for _ in range(6):
                lists.add(ids, bounds)
            lists.finish()

        with pytest.raises(error, match=re.escape(str(path))) as told:
            write_six()
        assert "\n" not in str(told.value)
        lists.close()
        assert not list(tmp_path.iterdir())
        # Also while somebody knows the error, and by it the lists.
        assert not open_paths(tmp_path)


def test_a_full_disk_is_a_destination_error(small_disk: Path) -> None:
    lists = new_lists(small_disk / "lists.bin")
    ids, bounds = random_list(100_000, 3, 0)

    def fill() -> None:
        for _ in range(4):
            lists.add(ids, bounds)
        lists.finish()

    with pytest.raises(DestinationError, match=r"lists\.bin: .*No space left on device; free some space"):
        fill()
    lists.close()
    assert not list(small_disk.iterdir())
    assert not open_paths(small_disk)


@pytest.mark.parametrize("kind", ["io_error", "truncated"])
def test_a_read_that_fails_names_file_and_offset_and_may_be_left(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lists.bin"
    lists = new_lists(path, injector=FaultInjector([FaultRule(kind, "reads", nth) for nth in (1, 2)]))
    expected = [random_list(3000, 2, 0)]
    lists.add(*expected[0])
    lists.finish()
    with pytest.raises(ReadError, match=rf"{re.escape(str(path))}.* at offset \d+"):
        lists.wait(lists.begin(0))
    lists.leave(lists.begin(1))
    wanted = lists.begin(0)
    lists.wait(wanted)
    assert_part(wanted, expected, 0)
    lists.close()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match="none"):
        new_lists(tmp_path / "none" / "lists.bin")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DestinationError, match="folder"):
        new_lists(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
