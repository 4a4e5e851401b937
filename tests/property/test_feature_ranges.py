"""Feature tables written in ranges are what they are written front to back, and what was finished is not done again."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import FaultInjector, FaultRule
from diskhop.budget import Budget
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.build.checks import encoded_rows
from diskhop.dataset.build.feature_ranges import STAGE, Values
from diskhop.dataset.build.files import WRITER_BYTES
from diskhop.dataset.encoding import row_bytes
from diskhop.dataset.verify import verify
from diskhop.errors import DestinationError, DiskhopError, SourceError
from diskhop.importing.arrays.npy import file_array
from diskhop.runtime.progress import Progress
from tests.examples import examples
from tests.graphs import folder_bytes, threads_engine

MIB = 1 << 20
DIM = 64
NUM_ROWS = 5 * MIB // (4 * DIM) + 3  # six ranges of 1 MiB in float32, the last of three rows
BLOCK_ROWS = 1000


@dataclass
class Streamed:
    """Values in memory that are read from the front; who reads from where, and how many rows were given."""

    rows: NDArray[Any]
    identity: str = "these"
    opened_at: list[int] = field(default_factory=list)
    num_read: int = 0
    told_rows: int | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.rows.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.told_rows or len(self.rows), self.rows.shape[1])

    def blocks(self) -> Iterator[NDArray[Any]]:
        return self._blocks(0)

    def _blocks(self, first_row: int) -> Iterator[NDArray[Any]]:
        self.opened_at.append(first_row)
        for start in range(first_row, len(self.rows), BLOCK_ROWS):
            block = self.rows[start : start + BLOCK_ROWS]
            self.num_read += len(block)
            yield block


class Anywhere(Streamed):
    """Those that can be read from any row on."""

    def blocks_from(self, first_row: int) -> Iterator[NDArray[Any]]:
        return self._blocks(first_row)


def random_rows(num_rows: int = NUM_ROWS, dim: int = DIM) -> NDArray[np.float32]:
    return np.random.default_rng(num_rows).standard_normal((num_rows, dim), np.float32)


def build(
    path: Path,
    add: Callable[[DatasetBuilder], None],
    num_nodes: int,
    *,
    budget: Budget | None = None,
    threads: int = 1,
    injector: FaultInjector | None = None,
    progress: Progress | None = None,
    range_bytes: int = MIB,
) -> dict[str, bytes]:
    """The bytes of a dataset with features."""
    with DatasetBuilder(
        path,
        name="test",
        engine=threads_engine(injector),
        budget=budget or Budget(1 << 30),
        threads=threads,
        origin="source",
        injector=injector,
        progress=progress,
        range_bytes=range_bytes,
    ) as builder:
        builder.add_nodes("node", num_nodes)
        add(builder)
        dataset = builder.finish()
    assert verify(dataset.path) == []
    return folder_bytes(path)


def build_in_ranges(path: Path, values: Values, dtype: str = "float32", **options: Any) -> dict[str, bytes]:
    return build(
        path, lambda builder: builder.add_feature_column("node", values, dtype=dtype), values.shape[0], **options
    )


def build_whole(path: Path, rows: NDArray[Any], dtype: str = "float32") -> dict[str, bytes]:
    dim = rows.shape[1]
    return build(path, lambda builder: builder.add_features("node", [rows], dim=dim, dtype=dtype), len(rows))


def stop_after(path: Path, values: Values, num_ranges: int, **options: Any) -> Path:
    """Have a build fail once so many of its ranges are done; its stage."""

    def progress(_stage: str, done: int, _total: int) -> None:
        if done == num_ranges:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        build_in_ranges(path, values, progress=progress, **options)
    stage = path.parent / f".{path.name}.work" / f"{STAGE}node"
    assert [path.parent / f".{path.name}.work"] == list(path.parent.iterdir())
    assert str(stage.parent) in "".join(caught.value.__notes__)
    return stage


@examples(40)
@given(
    kind=st.sampled_from([Streamed, Anywhere]),
    dtype=st.sampled_from(["float32", "float16", "bfloat16", "int8"]),
    dim=st.sampled_from([1, 3, 64, 100, 4095, 300_000]),
    num_bytes=st.integers(1, 4 * MIB),
    padding=st.sampled_from([0, 1, 60, 5000]),
    range_mib=st.integers(1, 3),
    threads=st.integers(1, 3),
)
def test_in_ranges_or_front_to_back_bytes_and_sums_are_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    kind: type[Streamed],
    dtype: str,
    dim: int,
    num_bytes: int,
    padding: int,
    range_mib: int,
    threads: int,
) -> None:
    folder = tmp_path_factory.mktemp("ranges")
    stride = row_bytes(dtype, dim) + padding
    rows = random_rows(min(-(-num_bytes // stride), 100_000), dim)

    def add_whole(builder: DatasetBuilder) -> None:
        builder.add_features("node", [rows], dim=dim, dtype=dtype, row_stride=stride)

    def add_in_ranges(builder: DatasetBuilder) -> None:
        builder.add_feature_column("node", kind(rows), dtype=dtype, row_stride=stride)

    expected = build(folder / "whole", add_whole, len(rows))
    made = build(folder / "ranges", add_in_ranges, len(rows), threads=threads, range_bytes=range_mib * MIB)
    assert made == expected
    assert {path.name for path in folder.iterdir()} == {"whole", "ranges"}


@pytest.mark.parametrize("num_done", [1, 3, 6])
def test_what_was_finished_is_not_read_again_where_it_can_be_passed_over(tmp_path: Path, num_done: int) -> None:
    rows = random_rows()
    stop_after(tmp_path / "graph", Anywhere(rows), num_done)
    again = Anywhere(rows)
    assert build_in_ranges(tmp_path / "graph", again) == build_whole(tmp_path / "whole", rows)
    rows_per_range = MIB // (4 * DIM)
    assert again.opened_at == [number * rows_per_range for number in range(num_done, 6)]


def test_a_stream_is_read_once_and_what_was_finished_is_not_converted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = random_rows()
    first = Streamed(rows)
    stop_after(tmp_path / "graph", first, 4)
    assert (first.opened_at, first.num_read) == ([0], -(-4 * MIB // (4 * DIM) // BLOCK_ROWS) * BLOCK_ROWS)
    converted = []

    def counted(blocks: Any, dtype: str, stride: int, origin: str, first_node: int) -> Iterator[NDArray[np.uint8]]:
        for block in encoded_rows(blocks, dtype, stride, origin, first_node):
            converted.append(len(block))
            yield block

    monkeypatch.setattr("diskhop.dataset.build.feature_ranges.encoded_rows", counted)
    again = Streamed(rows)
    assert build_in_ranges(tmp_path / "graph", again) == build_whole(tmp_path / "whole", rows)
    assert (again.opened_at, again.num_read) == ([0], NUM_ROWS)
    assert sum(converted) == NUM_ROWS - 4 * MIB // (4 * DIM)


def test_a_row_on_the_border_of_ranges_is_there_once(tmp_path: Path) -> None:
    rows = random_rows(3000, 333)
    values = Streamed(rows)
    assert build_in_ranges(tmp_path / "graph", values) == build_whole(tmp_path / "whole", rows)
    assert values.opened_at == [0]


def damage_cut(stage: Path) -> None:
    output = stage / "range-00001"
    output.write_bytes(output.read_bytes()[:-1])


def damage_flipped(stage: Path) -> None:
    output = stage / "range-00001"
    content = bytearray(output.read_bytes())
    content[0] ^= 1
    output.write_bytes(content)


def damage_short(stage: Path) -> None:
    os.truncate(stage / ".table", 3 * MIB)


def damage_gone(stage: Path) -> None:
    (stage / ".table").unlink()


@pytest.mark.parametrize(
    ("damage", "num_opened"), [(damage_cut, 3), (damage_flipped, 3), (damage_short, 6), (damage_gone, 6)]
)
def test_a_damaged_stage_is_not_used(tmp_path: Path, damage: Callable[[Path], None], num_opened: int) -> None:
    rows = random_rows()
    damage(stop_after(tmp_path / "graph", Anywhere(rows), 4))
    again = Anywhere(rows)
    assert build_in_ranges(tmp_path / "graph", again) == build_whole(tmp_path / "whole", rows)
    assert len(again.opened_at) == num_opened


def test_a_table_that_a_dataset_has_is_never_written_to(tmp_path: Path) -> None:
    """A crash after the dataset was published left its work folder, and the dataset was moved."""
    rows = random_rows()
    stage = stop_after(tmp_path / "graph", Anywhere(rows), 4)
    elsewhere = tmp_path / "moved.bin"
    os.link(stage / ".table", elsewhere)
    before = elsewhere.read_bytes()
    again = Anywhere(rows)
    build_in_ranges(tmp_path / "graph", again)
    assert len(again.opened_at) == 6
    assert elsewhere.read_bytes() == before
    assert elsewhere.stat().st_nlink == 1


@pytest.mark.parametrize("change", ["values", "dtype", "stride"])
def test_a_stage_of_another_table_is_not_used(tmp_path: Path, change: str) -> None:
    rows = random_rows()
    stop_after(tmp_path / "graph", Anywhere(rows), 2, dtype="float16")
    other = Anywhere(rows + 1, identity="others") if change == "values" else Anywhere(rows)
    dtype = "bfloat16" if change == "dtype" else "float16"  # a table of the same length
    stride = row_bytes(dtype, DIM) + (8 if change == "stride" else 0)
    found = build(
        tmp_path / "graph",
        lambda builder: builder.add_feature_column("node", other, dtype=dtype, row_stride=stride),
        NUM_ROWS,
    )
    expected = build(
        tmp_path / "whole",
        lambda builder: builder.add_features("node", [other.rows], dim=DIM, dtype=dtype, row_stride=stride),
        NUM_ROWS,
    )
    assert found == expected
    assert other.opened_at[0] == 0
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.parametrize("kind", [Streamed, Anywhere])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("node", [0, NUM_ROWS // 2, NUM_ROWS - 1])
def test_the_first_bad_value_is_the_same_line_whatever_the_threads(
    tmp_path: Path, kind: type[Streamed], threads: int, node: int
) -> None:
    rows = random_rows()
    rows[node:, 5] = np.nan
    with pytest.raises(SourceError) as expected:
        build_whole(tmp_path / "whole", rows)
    with pytest.raises(SourceError) as caught:
        build_in_ranges(tmp_path / "graph", kind(rows), threads=threads)
    assert str(caught.value) == str(expected.value)
    assert f"feature 5 of node {node} is nan" in str(caught.value)
    kept = list(tmp_path.iterdir())
    if threads == 1:
        assert len(kept) == (node >= MIB // (4 * DIM))
    assert [str(path) in "".join(getattr(caught.value, "__notes__", [])) for path in kept] == [True] * len(kept)


@pytest.mark.parametrize("kind", [Streamed, Anywhere])
@pytest.mark.parametrize("told_rows", [NUM_ROWS - 1, NUM_ROWS + 1, NUM_ROWS + 5000])
def test_more_or_fewer_rows_than_were_told_are_one_line(tmp_path: Path, kind: type[Streamed], told_rows: int) -> None:
    with pytest.raises(SourceError) as caught:
        build_in_ranges(tmp_path / "graph", kind(random_rows(), told_rows=told_rows))
    assert str(caught.value).startswith(f"source: has {NUM_ROWS} feature rows for {told_rows} nodes; give one for each")
    assert not (tmp_path / "graph").exists()


def test_another_number_of_nodes_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    values = Anywhere(random_rows())
    with pytest.raises(SourceError, match=f"has {NUM_ROWS} feature rows for 7 nodes; give one for each node"):
        build(tmp_path / "graph", lambda builder: builder.add_feature_column("node", values, dtype="float32"), 7)
    assert values.opened_at == []
    assert list(tmp_path.iterdir()) == []


def test_as_many_threads_as_the_budget_has_room_for(tmp_path: Path) -> None:
    rows = random_rows()
    smallest = Budget(WRITER_BYTES)
    expected = build_in_ranges(tmp_path / "one", Anywhere(rows), budget=smallest, threads=4)
    assert smallest.table() == {"writing files": WRITER_BYTES, "features": 0}
    thread_bytes = WRITER_BYTES + MIB * (2 * 4 + 16)
    for room, more_threads in ((thread_bytes - 1, 0), (thread_bytes, 1), (10 * thread_bytes, 3)):
        budget = Budget(WRITER_BYTES + room)
        path = tmp_path / f"room-{room}"
        assert build_in_ranges(path, Anywhere(rows), budget=budget, threads=4) == expected
        assert budget.table()["features"] == more_threads * thread_bytes
    streamed = Budget(1 << 30)
    assert build_in_ranges(tmp_path / "streamed", Streamed(rows), budget=streamed, threads=4) == expected
    assert streamed.table()["features"] == 0


@pytest.mark.fast(2)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("stored", [np.float32, np.float64])
def test_a_thread_holds_no_more_than_is_reserved_for_one(
    tmp_path: Path, stored: type[np.float32 | np.float64], dtype: str
) -> None:
    np.save(tmp_path / "x.npy", random_rows(100 * MIB // (4 * DIM)).astype(stored))
    values = file_array(tmp_path / "x.npy")
    budget = Budget(1 << 30)
    peak_bytes = 0

    def add(builder: DatasetBuilder) -> None:
        nonlocal peak_bytes
        tracemalloc.start()
        builder.add_feature_column("node", values, dtype=dtype)
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    build(tmp_path / "graph", add, values.shape[0], budget=budget, threads=2, range_bytes=16 * MIB)
    # The buffers of the core are not traced.
    assert peak_bytes < 2 * (budget.table()["features"] - WRITER_BYTES)


def test_without_second_names_the_table_is_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_source: Path, _destination: Path) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    rows = random_rows()
    assert build_in_ranges(tmp_path / "graph", Streamed(rows)) == build_whole(tmp_path / "whole", rows)


@pytest.mark.fast(3)
@pytest.mark.parametrize("counted", ["writes", "fsyncs", "renames"])
@pytest.mark.parametrize("kind", ["no_space", "io_error"])
def test_every_change_that_fails_is_one_line_and_the_next_run_ends_the_same(
    tmp_path: Path, kind: str, counted: str
) -> None:
    rows = random_rows(3 * MIB // (4 * DIM) - 5)
    counting = FaultInjector([])
    expected = build_in_ranges(tmp_path / "whole", Anywhere(rows), injector=counting)
    graph = tmp_path / "root" / "graph"
    graph.parent.mkdir()
    for nth in range(1, counting.count(counted) + 1):
        injector = FaultInjector([FaultRule(kind, counted, nth)])
        with pytest.raises(DiskhopError) as caught:
            build_in_ranges(graph, Anywhere(rows), injector=injector)
        assert "\n" not in str(caught.value)
        assert str(tmp_path / "root") in str(caught.value)
        if kind == "no_space":
            assert isinstance(caught.value, DestinationError)
        # The last change of all removes the work folder of a dataset that is there.
        if not graph.exists():
            assert {path.name for path in graph.parent.iterdir()} <= {".graph.work"}
            build_in_ranges(graph, Anywhere(rows))
        assert folder_bytes(graph) == expected
        shutil.rmtree(graph.parent)
        graph.parent.mkdir()
