"""Batches and models through `packed` are, bit for bit, those through `memory`; a disk or chunk gone bad is told."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from diskhop import NeighborLoader, train
from diskhop.dataset.dataset import Dataset
from diskhop.errors import BudgetError, ConfigError, FormatError
from diskhop.protocols import Table
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.stores.packed.packer import Packer
from diskhop.stores.packed.store import PackedStore
from tests.graphs import make_dataset, open_paths
from tests.runs import OPTIONS, assert_same_run, small_graph

# What a table may be like, and how rows are held and superbatches cut.
DTYPES_AND_DIMS = [("float32", 6), ("float16", 3), ("bfloat16", 129), ("int8", 1), ("int8", 127), ("int8", 1000)]
WAYS: list[dict[str, Any]] = [
    {"cache": 0},
    {"cache": "3KB"},
    {"cache": "3KB", "pinned": "accesses"},
    {"cache": "100MB"},
    {"cache": "100MB", "pinned": "accesses"},
    {},
    {"cache": "3KB", "disk": "250KB"},
]


def batches_of(dataset: Dataset, **options: Any) -> list[bytes]:
    """Two epochs."""
    arguments: dict[str, Any] = {
        "num_neighbors": [4, 3],
        "batch_size": 7,
        "input_nodes": range(80),
        "shuffle": True,
        "memory": "150MB",
        "threads": 2,
        **options,
    }
    found = []
    with NeighborLoader(dataset, **arguments) as loader:
        for _ in range(2):
            for batch in loader:
                found += [batch.n_id.numpy().tobytes(), batch.edge_index.numpy().tobytes()]
                found.append(batch.x.view(torch.uint8).numpy().tobytes())
    return found


@pytest.mark.fast(2)
@pytest.mark.parametrize(("dtype", "dim"), DTYPES_AND_DIMS)
def test_a_loader_s_batches_are_those_of_memory(tmp_path: Path, dtype: str, dim: int) -> None:
    made = make_dataset(tmp_path / "graph", num_nodes=900, num_edges=4000, dim=dim, dtype=dtype)
    expected = batches_of(made, store="memory")
    for way in WAYS:
        # For the largest rows, superbatches of one batch.
        options = {**way, "disk": "2MB"} if "disk" in way and dim == 1000 else way
        scratch = tmp_path / "scratch"
        assert batches_of(made, store="packed", scratch=str(scratch), **options) == expected, way
        assert not list(scratch.iterdir())


@pytest.mark.parametrize("partition_rows", [64, 256])
def test_a_loader_s_batches_are_those_of_memory_whatever_the_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_rows: int
) -> None:
    made = make_dataset(tmp_path / "graph", num_nodes=900, num_edges=4000, dim=64, dtype="float32")
    expected = batches_of(made, store="memory")
    num_partitions = []
    begin = Packer.__init__

    def begin_small(self: Packer, table: Table, *given: Any, **named: Any) -> None:
        given = (*given[:3], partition_rows * table.row_stride, *given[4:])
        begin(self, table, *given, **named)
        num_partitions.append(self.num_partitions)

    monkeypatch.setattr(Packer, "__init__", begin_small)
    assert batches_of(made, store="packed", cache="3KB") == expected
    assert num_partitions == [-(-900 // partition_rows)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm")


@pytest.mark.fast(3)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cache_bytes": 2000},
        {"cache_bytes": 2000, "pinned": "accesses"},
        {"cache_bytes": 2000, "disk_bytes": 300_000, "batch_size": 20},
        {"cache_bytes": 2000, "reuse": True, "threads": 2},
        {"cache_bytes": 10**8},
    ],
)
def test_a_model_is_that_of_memory(dataset: Dataset, tmp_path: Path, changes: dict[str, Any]) -> None:
    common = {name: value for name, value in changes.items() if name in ("batch_size", "reuse", "threads")}
    train(dataset, out=tmp_path / "memory", **{**OPTIONS, **common, "store": "memory"})
    scratch = tmp_path / "scratch"
    train(dataset, out=tmp_path / "packed", **{**OPTIONS, **changes, "store": "packed", "scratch": str(scratch)})
    assert_same_run(tmp_path / "memory", tmp_path / "packed")
    # What is used again and again is packed ahead, and stays.
    assert len(list(scratch.iterdir())) == ("reuse" in changes)


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_a_model_of_other_values_is_that_of_memory(tmp_path: Path, dtype: str) -> None:
    made = make_dataset(tmp_path / "graph", num_nodes=600, num_edges=3000, dim=3, dtype=dtype)
    options = {**OPTIONS, "epochs": 2}
    train(made, out=tmp_path / "memory", **{**options, "store": "memory"})
    train(made, out=tmp_path / "packed", **{**options, "store": "packed", "cache_bytes": 500})
    assert_same_run(tmp_path / "memory", tmp_path / "packed")


def test_a_chunk_damaged_while_training_ends_it_in_one_line(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_ahead = PackedStore.look_ahead
    num_damaged = 0

    def damage(self: PackedStore, *given: Any) -> None:
        nonlocal num_damaged
        look_ahead(self, *given)
        path = max(tmp_path.glob("scratch/*/chunks-*.bin"), key=lambda path: path.stat().st_mtime_ns)
        content = bytearray(path.read_bytes())
        # No block begins with what fills one up.
        for block in range(len(content) // 8192, len(content) // 4096):
            content[4096 * block] ^= 8
        path.write_bytes(content)
        num_damaged += 1

    monkeypatch.setattr(PackedStore, "look_ahead", damage)
    options = {**OPTIONS, "batch_size": 5, "store": "packed", "cache_bytes": 100, "scratch": str(tmp_path / "scratch")}
    with pytest.raises(FormatError, match=r"chunks-\d+\.bin: .*chunk.* at byte \d+.*pack again$"):
        train(dataset, out=tmp_path / "run", **options)
    assert num_damaged >= 1
    assert not list((tmp_path / "scratch").iterdir())
    assert not open_paths(tmp_path / "scratch")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("diskhop")]


class LeftError(Exception):
    pass


class LeaveAt(Callback):
    def __init__(self, batch: int) -> None:
        self._batch = batch

    def batch_done(self, progress: BatchProgress) -> None:
        if progress.batch == self._batch:
            raise LeftError


@pytest.mark.parametrize("batch", [1, 7, 16, 17, 30])
def test_training_that_is_left_leaves_nothing(dataset: Dataset, tmp_path: Path, batch: int) -> None:
    options = {**OPTIONS, "batch_size": 5, "store": "packed", "cache_bytes": 2000, "scratch": str(tmp_path / "scratch")}
    with pytest.raises(LeftError):
        train(dataset, out=tmp_path / "run", callbacks=[LeaveAt(batch)], **options)
    assert not list((tmp_path / "scratch").iterdir())
    assert not open_paths(tmp_path / "scratch")


def test_a_stream_is_left_at_once_while_its_second_superbatch_is_packed(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packing slowed down to minutes."""
    pack = Packer.pack
    num_packing = 0
    is_packing = threading.Event()

    def pack_slowly(self: Packer, trace: Any, chunks: Any, path: Path, scratch: Path, keep_on: Any, *more: Any) -> Any:
        nonlocal num_packing
        num_packing += 1

        def keep_on_slowly() -> None:
            if num_packing == 2:
                is_packing.set()
                time.sleep(0.1)
            keep_on()

        return pack(self, trace, chunks, path, scratch, keep_on_slowly, *more)

    monkeypatch.setattr(Packer, "pack", pack_slowly)
    with NeighborLoader(
        dataset, [4, 3], "train", batch_size=1, store="packed", memory="100MB", cache=2000, scratch=str(tmp_path)
    ) as loader:
        batches = iter(loader)
        next(batches)
        assert is_packing.wait(20)
        left = time.monotonic()
        del batches
        assert time.monotonic() - left < 1
        assert num_packing == 2
    assert time.monotonic() - left < 1.5
    assert not list(tmp_path.iterdir())
    assert not open_paths(tmp_path)


def test_the_smallest_budget_that_is_named_works_and_less_does_not(dataset: Dataset) -> None:
    with pytest.raises(BudgetError, match="smallest that works") as caught:
        batches_of(dataset, store="packed", memory=10_000)
    smallest_bytes = caught.value.smallest_bytes
    assert smallest_bytes is not None
    assert batches_of(dataset, store="packed", memory=smallest_bytes) == batches_of(dataset, store="memory")
    with pytest.raises(BudgetError):
        batches_of(dataset, store="packed", memory=smallest_bytes - 1)


def test_a_table_of_too_many_rows_is_refused_before_anything_is_measured(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = dataset.feature_table()
    assert table is not None
    large = Table(path=table.path, num_rows=2**32 + 1, row_bytes=table.row_bytes, row_stride=table.row_stride)
    monkeypatch.setattr(Dataset, "feature_table", lambda _self: large)
    told = rf"{re.escape(str(table.path))}: has 4294967297 rows, --store packed takes at most 4294967296; use"
    with pytest.raises(ConfigError, match=told):
        NeighborLoader(dataset, [4], "train", store="packed", memory="100MB")
