"""Claims about HopLoader, over every place, order and shape of tables; and what happens when reading fails."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import diskhop
from diskhop._native import FaultInjector, FaultRule
from diskhop.budget import Budget
from diskhop.derived.clean import list_derived, remove_unused
from diskhop.errors import BudgetError, ConfigError, FormatError, ReadError
from diskhop.hops.read.order import SHUFFLES, row_order
from diskhop.hops.tables import TILE_ROWS, HopTables
from diskhop.io.engine import open_engine
from diskhop.loaders.hops import HopLoader
from tests.hop_tables import write_hop_tables

PLACES = ("memory", "disk")
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
# Rows that lie whole on whole blocks, rows that do not, tiles, columns that fill no tile; more than a group of rows.
SHAPES: dict[str, dict[str, Any]] = {
    "whole-blocks": {"dim": 128, "tile_columns": None, "dtype": "float32"},
    "odd-rows": {"dim": 7, "tile_columns": None, "dtype": "float16"},
    "tiles": {"dim": 8, "tile_columns": 4, "dtype": "float32"},
    "odd-tiles": {"dim": 7, "tile_columns": 4, "dtype": "bfloat16"},
}
NUM_ROWS = TILE_ROWS + 904


def values_of(num_tables: int, num_rows: int, dim: int) -> np.ndarray:
    """Small whole numbers: every dtype has them."""
    return np.random.default_rng(3).integers(-99, 99, (num_tables, num_rows, dim)).astype(np.float32)


@pytest.fixture(params=SHAPES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[HopTables, np.ndarray]:
    shape = SHAPES[request.param]
    values = values_of(3, NUM_ROWS, shape["dim"])
    return write_hop_tables(
        tmp_path / "t", list(values), dtype=shape["dtype"], tile_columns=shape["tile_columns"]
    ), values


@pytest.mark.pairwise
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("chunk_rows", [96, 1000])
@pytest.mark.parametrize("is_subset", [False, True], ids=["all-nodes", "some-nodes"])
def test_batches_are_the_tables_rows_in_the_order_of_the_epoch(
    case: tuple[HopTables, np.ndarray], place: Any, shuffle: Any, chunk_rows: int, is_subset: bool
) -> None:
    tables, values = case
    nodes = np.random.default_rng(5).permutation(NUM_ROWS)[:3000] if is_subset else None
    row_set = np.arange(NUM_ROWS) if nodes is None else np.sort(nodes)
    loader = HopLoader(
        tables, nodes, batch_size=1000, shuffle=shuffle, chunk_rows=chunk_rows, place=place, memory="100MB", seed=4
    )
    with loader:
        for epoch in range(2):
            order = row_order(len(row_set), shuffle, chunk_rows=chunk_rows, seed=4, epoch=epoch)
            start = 0
            for number, batch in enumerate(loader):
                expected = row_set[order.positions(start, start + 1000)]
                np.testing.assert_array_equal(batch.rows, expected)
                np.testing.assert_array_equal(batch.nodes, expected)
                assert batch.x.dtype == DTYPES[tables.dtype]
                np.testing.assert_array_equal(batch.x.float().numpy(), values[:, expected])
                assert batch.number == number
                start += len(expected)
            assert (number + 1, start) == (len(loader), len(row_set))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("which", [(-1,), (0, 2), (2, 1)])
def test_only_the_tables_asked_for_are_read(case: tuple[HopTables, np.ndarray], place: Any, which: Any) -> None:
    tables, values = case
    with HopLoader(tables, which=which, batch_size=1000, place=place, memory="100MB") as loader:
        # Tables that are not asked for are not looked at.
        for table in set(range(3)) - set(loader.which):
            tables.table_path(table).unlink()
        for batch in loader:
            np.testing.assert_array_equal(batch.x.float().numpy(), values[list(which)][:, batch.rows])


def test_whole_blocks_are_read_once_and_never_copied(tmp_path: Path) -> None:
    tables = write_hop_tables(tmp_path / "t", list(values_of(2, 4000, 128)))
    with HopLoader(tables, batch_size=800, place="disk", memory="100MB") as loader:
        counts = [batch.counts for batch in loader]
    assert sum(count.bytes_read for count in counts) == 2 * 4000 * 512
    assert sum(count.bytes_copied for count in counts) == 0
    assert sum(count.rows_requested for count in counts) == 2 * 4000


@pytest.mark.parametrize("place", PLACES)
def test_other_rows_are_passed_over_with_the_same_buffers(tmp_path: Path, place: Any) -> None:
    nodes = np.arange(10, 3010, 3)
    values = values_of(2, 1000, 6)
    tables = write_hop_tables(tmp_path / "t", list(values), rows=nodes)
    with HopLoader(tables, nodes[:600], batch_size=100, place=place, memory="100MB") as loader:
        valid = loader.rows_of(nodes[:599:-1])
        held = loader.budget.available_bytes
        with loader.run(valid, shuffle="none") as batches:
            seen = [(batch.nodes, batch.x.numpy().copy()) for batch in batches]
        np.testing.assert_array_equal(np.concatenate([each[0] for each in seen]), nodes[600:])
        np.testing.assert_array_equal(np.concatenate([each[1] for each in seen], axis=1), values[:, 600:])
        assert loader.budget.available_bytes == held


@pytest.mark.parametrize("num_buffers", [1, 2, 3])
@pytest.mark.parametrize("place", PLACES)
def test_batches_stay_until_the_next_is_asked_for(tmp_path: Path, place: Any, num_buffers: int) -> None:
    values = values_of(2, 900, 128)
    tables = write_hop_tables(tmp_path / "t", list(values))
    with HopLoader(tables, batch_size=100, place=place, num_buffers=num_buffers, memory="100MB") as loader:
        for batch in loader:
            time.sleep(0.005)  # what is read ahead has arrived
            np.testing.assert_array_equal(batch.x.numpy(), values[:, batch.rows])


def test_tables_go_to_memory_where_they_fit(tmp_path: Path) -> None:
    tables = write_hop_tables(tmp_path / "t", list(values_of(2, 20_000, 128)))
    for memory, place, shuffle in (("60MB", "memory", "rows"), ("20MB", "disk", "chunks")):
        with HopLoader(tables, batch_size=100, memory=memory) as loader:
            assert (loader.placement.place, loader.placement.shuffle) == (place, shuffle)
            assert loader.placement.reason.startswith(f"placement {place} (tables take 2")


@pytest.mark.parametrize("place", PLACES)
def test_the_smallest_memory_that_is_named_works(tmp_path: Path, place: Any) -> None:
    tables = write_hop_tables(tmp_path / "t", list(values_of(2, 9000, 128)))
    with pytest.raises(BudgetError, match="the smallest that works is") as refusal:
        HopLoader(tables, batch_size=1000, place=place, memory="1MB")
    smallest_bytes = refusal.value.smallest_bytes
    assert smallest_bytes is not None
    budget = Budget(smallest_bytes)
    with HopLoader(tables, batch_size=1000, place=place, memory=budget) as loader:
        assert sum(1 for _ in loader) == 9
    assert budget.available_bytes == budget.total_bytes
    with pytest.raises(BudgetError):
        HopLoader(tables, batch_size=1000, place=place, memory=smallest_bytes - 1)


def test_folders_in_use_are_not_cleaned(tmp_path: Path) -> None:
    write_hop_tables(tmp_path / "propagated-0123456789abcdef", list(values_of(2, 50, 8)))
    with diskhop.HopLoader(tmp_path / "propagated-0123456789abcdef", batch_size=10, memory="100MB"):
        (entry,) = list_derived(tmp_path)
        assert (entry.what, entry.kept_because) == ("hop tables", "in use")
    (entry,) = remove_unused(list_derived(tmp_path))
    assert entry.is_removed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "HopLoader: batch_size must be from 1 to 2147483647, got 0; for example batch_size=1000"),
        ({"chunk_rows": 0}, "HopLoader: chunk_rows must be from 1 to 2147483647, got 0"),
        ({"num_buffers": 0}, "num_buffers must be at least 1, got 0"),
        ({"threads": 0}, "HopLoader: threads must be from 1 to 1024, got 0"),
        ({"shuffle": "all"}, "unknown shuffle 'all'; the known ones are none, rows, chunks"),
        ({"place": "device"}, "place must be 'memory' or 'disk' without a device, got 'device'"),
        ({"place": "tape"}, "unknown place 'tape'; the known ones are device, memory, disk"),
        ({"which": [3]}, "has 3 tables, no table 3"),
        ({"which": []}, "at least one table"),
        ({"nodes": np.array([1, 7, 1])}, "id 1 is there twice"),
        ({"nodes": np.array([1, 50])}, "no row for node 50"),
    ],
    ids=lambda value: next(iter(value)) + "-" + str(next(iter(value.values()))) if isinstance(value, dict) else "",
)
def test_what_cannot_be_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    tables = write_hop_tables(tmp_path / "t", list(values_of(3, 50, 8)))
    budget = Budget(100_000_000)
    with pytest.raises(ConfigError, match=message):
        HopLoader(tables, **{"memory": budget, **options})
    assert budget.available_bytes == budget.total_bytes


def num_threads() -> int:
    return sum(thread.name.startswith("hop-rows") for thread in threading.enumerate())


@pytest.mark.parametrize("place", PLACES)
def test_leaving_early_ends_soon_and_gives_everything_back(case: tuple[HopTables, np.ndarray], place: Any) -> None:
    budget = Budget(100_000_000)
    with HopLoader(case[0], batch_size=100, place=place, memory=budget) as loader:
        for _ in loader:
            break
        iterator = iter(loader)
        next(iterator)
        begin = time.perf_counter()
    assert time.perf_counter() - begin < 2
    assert num_threads() == 0
    assert budget.available_bytes == budget.total_bytes
    with pytest.raises(ConfigError, match="is closed"):
        iter(loader).__next__()


@pytest.mark.parametrize("nth", [1, 4, 9])
def test_a_failed_read_reaches_the_consumer_and_the_loader_goes_on(
    case: tuple[HopTables, np.ndarray], nth: int
) -> None:
    tables, values = case
    injector = FaultInjector([FaultRule("io_error", "reads", nth)])
    engine = open_engine("threads", 16, injector).engine
    with HopLoader(tables, batch_size=1000, place="disk", memory="100MB", engine=engine) as loader:
        with pytest.raises(ReadError, match=r"hop-\d\.bin.*offset"):
            for _ in loader:
                pass
        for batch in loader:
            np.testing.assert_array_equal(batch.x.float().numpy(), values[:, batch.rows])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["short_transfer", "interrupted", "again"])
def test_reads_that_stumble_are_finished(case: tuple[HopTables, np.ndarray], place: Any, kind: str) -> None:
    tables, values = case
    engine = open_engine("threads", 16, FaultInjector([FaultRule(kind, "reads", nth) for nth in (1, 2, 5)])).engine
    with HopLoader(tables, batch_size=1000, place=place, memory="100MB", engine=engine) as loader:
        for batch in loader:
            np.testing.assert_array_equal(batch.x.float().numpy(), values[:, batch.rows])


@pytest.mark.parametrize("place", PLACES)
def test_a_table_cut_short_after_opening_is_told_with_file_and_offset(
    case: tuple[HopTables, np.ndarray], place: Any
) -> None:
    tables, _ = case
    with tables.table_path(1).open("r+b") as file:
        file.truncate(tables.files[1].num_bytes // 8192 * 4096)
    with (
        pytest.raises(ReadError, match=r"sign-hop-1\.bin.*offset"),
        HopLoader(tables, batch_size=1000, place=place, memory="100MB") as loader,
    ):
        for _ in loader:
            pass
    assert num_threads() == 0


def test_a_table_damaged_on_the_disk_is_told_where_it_is_read_whole(case: tuple[HopTables, np.ndarray]) -> None:
    tables, _ = case
    budget = Budget(100_000_000)
    with tables.table_path(2).open("r+b") as file:
        file.seek(5000)
        file.write(b"\x01\x02\x03")
    with pytest.raises(FormatError, match=r"sign-hop-2\.bin: is damaged \(its checksum"):
        HopLoader(tables, place="memory", memory=budget)
    assert budget.available_bytes == budget.total_bytes
