"""Claims about rows: read or copied, each arrives whole in its place, and a failed read is never data."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diskhop._native import (
    BufferPool,
    Engine,
    FaultInjector,
    FaultRule,
    File,
    RowReader,
    append_rows,
    copy_rows,
    keyed_permutation,
    why_no_uring,
)
from diskhop.errors import ReadError
from tests.examples import examples

ENGINES = ["threads"] if why_no_uring() else ["uring", "threads"]
POOL = BufferPool(64 << 20)


@pytest.fixture(params=ENGINES, scope="module")
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(request.param, 64)


@pytest.fixture(scope="module")
def write_table(tmp_path_factory: pytest.TempPathFactory) -> Callable[[NDArray[np.uint8]], Path]:
    path = tmp_path_factory.mktemp("rows") / "features.bin"

    def write(table: NDArray[np.uint8]) -> Path:
        path.write_bytes(table.tobytes())
        return path

    return write


def make_table(num_rows: int, row_stride: int) -> NDArray[np.uint8]:
    return np.random.default_rng(num_rows).integers(0, 256, (num_rows, row_stride), np.uint8)


def poisoned(num_rows: int, row_bytes: int) -> NDArray[np.uint8]:
    return np.full((num_rows, row_bytes), 0xA5, np.uint8)


@st.composite
def reads(draw: st.DrawFn) -> tuple[int, int, int, list[int]]:
    """num_rows, row_bytes, row_stride, ids."""
    row_bytes = draw(st.sampled_from([1, 2, 3, 8, 60, 512, 700, 5000]))
    row_stride = row_bytes + draw(st.sampled_from([0, 0, 1, 4, 512]))
    num_rows = draw(st.integers(1, 300))
    ids = draw(st.lists(st.integers(0, num_rows - 1), max_size=60))
    if draw(st.booleans()):
        ids = sorted(set(ids))
    return num_rows, row_bytes, row_stride, ids


@examples(60, [HealthCheck.function_scoped_fixture])
@given(
    case=reads(),
    direct=st.booleans(),
    max_gap_bytes=st.sampled_from([-1, 0, 600, 50_000]),
    max_read_bytes=st.sampled_from([1, 4096, 1 << 20]),
    staging_bytes=st.sampled_from([32 << 10, 1 << 20]),
    is_scattered=st.booleans(),
)
def test_reading_equals_indexing(
    engine: Engine,
    write_table: Callable[[NDArray[np.uint8]], Path],
    case: tuple[int, int, int, list[int]],
    direct: bool,
    max_gap_bytes: int,
    max_read_bytes: int,
    staging_bytes: int,
    is_scattered: bool,
) -> None:
    num_rows, row_bytes, row_stride, ids = case
    table = make_table(num_rows, row_stride)
    file = File(str(write_table(table)), "read", direct)
    reader = RowReader(
        engine, file, num_rows, row_bytes, row_stride, max_gap_bytes, max_read_bytes, staging_bytes, POOL
    )
    if is_scattered:
        out, expected = poisoned(3 * len(ids), row_bytes), poisoned(3 * len(ids), row_bytes)
        to_rows = np.random.default_rng(len(ids)).permutation(3 * len(ids))[: len(ids)]
    else:
        out, expected, to_rows = poisoned(len(ids), row_bytes), poisoned(len(ids), row_bytes), None
    num_reads, bytes_read, bytes_copied = reader.read(np.array(ids, np.int64), out, to_rows)
    expected[slice(None) if to_rows is None else to_rows] = table[ids, :row_bytes]
    assert bytes_copied == len(ids) * row_bytes
    np.testing.assert_array_equal(out, expected)
    if max_gap_bytes < 0:
        assert num_reads == len(set(ids))
    else:
        assert num_reads <= len(set(ids))
        assert bytes_read >= len(set(ids)) * row_bytes


def test_many_rows_through_little_staging(engine: Engine, tmp_path: Path) -> None:
    table = make_table(20_000, 520)
    (tmp_path / "features.bin").write_bytes(table.tobytes())
    file = File(str(tmp_path / "features.bin"), "read")
    ids = np.random.default_rng(1).integers(0, 20_000, 8000)
    for staging_bytes in (16 << 10, 100_000, 8 << 20):
        reader = RowReader(engine, file, 20_000, 520, 520, 4096, 1 << 20, staging_bytes, POOL)
        out = poisoned(len(ids), 520)
        reader.read(ids, out)
        np.testing.assert_array_equal(out, table[ids])


def test_rows_outside_the_table_are_refused_before_anything_is_read(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "features.bin").write_bytes(make_table(10, 8).tobytes())
    reader = RowReader(engine, File(str(tmp_path / "features.bin"), "read"), 10, 8, 8, 0, 4096, 1 << 16, POOL)
    for ids in ([10], [-1], [3, 12, 1], [0, 5, -(2**63)]):
        out = poisoned(len(ids), 8)
        with pytest.raises(IndexError, match="is outside the table of 10 rows"):
            reader.read(np.array(ids, np.int64), out)
        assert np.all(out == 0xA5)


def test_places_are_checked_before_anything_is_read(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "features.bin").write_bytes(make_table(10, 8).tobytes())
    reader = RowReader(engine, File(str(tmp_path / "features.bin"), "read"), 10, 8, 8, 0, 4096, 1 << 16, POOL)
    ids, out = np.array([1, 2]), poisoned(3, 8)
    for places in ([0, 3], [-1, 0]):
        with pytest.raises(IndexError, match="is outside the 3 rows of out"):
            reader.read(ids, out, np.array(places))
    for few in ([0], [0, 1, 2]):
        with pytest.raises(ValueError, match="ids and to_rows must have the same length"):
            reader.read(ids, out, np.array(few))
    assert np.all(out == 0xA5)


def test_staging_too_small_names_the_smallest_that_works(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "features.bin").write_bytes(make_table(10, 5000).tobytes())
    file = File(str(tmp_path / "features.bin"), "read")
    with pytest.raises(ValueError, match="the smallest that works is") as refusal:
        RowReader(engine, file, 10, 5000, 5000, 0, 4096, 9000, POOL)
    smallest_bytes = int(str(refusal.value).rsplit(" ", 1)[1])
    out = poisoned(10, 5000)
    RowReader(engine, file, 10, 5000, 5000, 0, 4096, smallest_bytes, POOL).read(np.arange(10), out)
    np.testing.assert_array_equal(out, make_table(10, 5000))


def test_an_output_of_another_shape_is_refused(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "features.bin").write_bytes(make_table(10, 8).tobytes())
    reader = RowReader(engine, File(str(tmp_path / "features.bin"), "read"), 10, 8, 8, 0, 4096, 1 << 16, POOL)
    for shape in ((2, 8), (3, 7)):
        with pytest.raises(ValueError, match="out must be 3 rows of 8 bytes"):
            reader.read(np.array([1, 2, 3]), np.empty(shape, np.uint8))


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("kind", ["short_transfer", "interrupted", "again"])
def test_faults_that_a_retry_cures_leave_no_trace(name: str, kind: str, tmp_path: Path) -> None:
    table = make_table(2000, 512)
    (tmp_path / "features.bin").write_bytes(table.tobytes())
    file = File(str(tmp_path / "features.bin"), "read")
    ids = np.random.default_rng(5).permutation(2000)[:40]
    for nth in range(1, 42):
        injector = FaultInjector([FaultRule(kind, "reads", nth)], seed=nth)
        reader = RowReader(Engine(name, 8, injector), file, 2000, 512, 512, 0, 4096, 1 << 16, POOL)
        out = poisoned(len(ids), 512)
        reader.read(ids, out)
        np.testing.assert_array_equal(out, table[ids])


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("kind", ["io_error", "truncated"])
def test_a_failed_read_names_file_and_offset_and_the_next_call_works(name: str, kind: str, tmp_path: Path) -> None:
    table = make_table(3000, 512)
    (tmp_path / "features.bin").write_bytes(table.tobytes())
    file = File(str(tmp_path / "features.bin"), "read")
    ids = np.arange(0, 3000, 10)
    # More groups than fit the window, so that others are in flight when one fails.
    for nth in (1, 2, 63, 64, 65, 150, 299, 300):
        injector = FaultInjector([FaultRule(kind, "reads", nth)])
        reader = RowReader(Engine(name, 32, injector), file, 3000, 512, 512, -1, 4096, 32 << 10, POOL)
        out = poisoned(len(ids), 512)
        with pytest.raises(ReadError, match=r"features\.bin.*offset [0-9]+"):
            reader.read(ids, out)
        reader.read(ids, out)
        np.testing.assert_array_equal(out, table[ids])


@pytest.mark.parametrize("direct", [True, False])
def test_a_truncated_table_is_an_error(engine: Engine, tmp_path: Path, direct: bool) -> None:
    table = make_table(1000, 100)
    (tmp_path / "features.bin").write_bytes(table.tobytes()[:-1])
    file = File(str(tmp_path / "features.bin"), "read", direct)
    reader = RowReader(engine, file, 1000, 100, 100, 0, 4096, 1 << 16, POOL)
    reader.read(np.arange(900), poisoned(900, 100))
    with pytest.raises(ReadError, match=r"features\.bin"):
        reader.read(np.array([3, 999]), poisoned(2, 100))


@given(
    num_source=st.integers(1, 50),
    num_out=st.integers(1, 50),
    row_bytes=st.sampled_from([1, 7, 64, 513]),
    picks=st.lists(st.tuples(st.integers(0, 49), st.integers(0, 49)), max_size=50, unique_by=lambda pick: pick[1]),
    threads=st.integers(1, 5),
)
def test_copying_equals_indexing(
    num_source: int, num_out: int, row_bytes: int, picks: list[tuple[int, int]], threads: int
) -> None:
    picks = [(row, place) for row, place in picks if row < num_source and place < num_out]
    source = make_table(num_source, row_bytes + 3)[:, 1 : row_bytes + 1]
    from_rows = np.array([row for row, _ in picks], np.int64)
    to_rows = np.array([place for _, place in picks], np.int64)
    out, expected = poisoned(num_out, row_bytes), poisoned(num_out, row_bytes)
    copy_rows(source, from_rows, out, to_rows, threads)
    expected[to_rows] = source[from_rows]
    np.testing.assert_array_equal(out, expected)

    gathered = poisoned(len(picks), row_bytes)
    copy_rows(source, from_rows, gathered, None, threads)
    np.testing.assert_array_equal(gathered, source[from_rows])

    scattered = poisoned(max(num_out, num_source), row_bytes)
    places = np.random.default_rng(num_out).permutation(len(scattered))[:num_source]
    copy_rows(source, None, scattered, places, threads)
    np.testing.assert_array_equal(scattered[places], source)


@given(
    appended=st.lists(st.lists(st.lists(st.integers(0, 29), max_size=9), min_size=3, max_size=3), max_size=5),
    row_bytes=st.sampled_from([1, 7, 64, 100]),
    threads=st.integers(1, 3),
)
def test_rows_appended_to_streams_are_written_in_whole_blocks(
    appended: list[list[list[int]]], row_bytes: int, threads: int
) -> None:
    """Bytes written and bytes left are the rows of each stream, one after the other."""
    source = make_table(30, row_bytes + 3)[:, 1 : row_bytes + 1]
    block_bytes, first_id, place_bytes = 64, 1000, 1024
    rests, rest_bytes = np.zeros((3, block_bytes), np.uint8), np.zeros(3, np.int64)
    written = [b"", b"", b""]
    for picks in appended:
        counts = np.array([len(each) for each in picks], np.int64)
        ids = np.array([5, *itertools.chain(*picks)], np.uint32) + np.uint32(first_id)
        begins = 1 + np.cumsum(counts) - counts
        places = np.arange(3, dtype=np.int64)[::-1] * place_bytes
        ends = rest_bytes + counts * row_bytes
        out = np.zeros(3 * place_bytes, np.uint8)
        append_rows(source, ids, first_id, begins, counts, places.copy(), rests, rest_bytes, out, threads)
        for stream in np.flatnonzero(counts).tolist():
            whole_bytes = int(ends[stream]) // block_bytes * block_bytes
            written[stream] += out[places[stream] :][:whole_bytes].tobytes()
    for stream in range(3):
        expected = b"".join(source[picks[stream]].tobytes() for picks in appended)
        assert written[stream] + rests[stream, : rest_bytes[stream]].tobytes() == expected


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"ids": [7, 12]}, IndexError),
        ({"ids": [2, 9]}, IndexError),
        ({"begins": [2]}, IndexError),
        ({"begins": [-1]}, IndexError),
        ({"counts": [3]}, IndexError),
        ({"counts": [-1]}, IndexError),
        ({"places": [41]}, IndexError),
        ({"rest_bytes": [64]}, IndexError),
        ({"rest_bytes": [-1]}, IndexError),
        ({"places": [0, 0]}, ValueError),
    ],
)
def test_streams_outside_their_arrays_are_refused_before_anything_is_changed(
    changed: dict[str, list[int]], error: type[Exception]
) -> None:
    given = {"begins": [0], "counts": [2], "places": [0], "rest_bytes": [5]} | changed
    begins, counts, places, rest_bytes = (
        np.array(given[name], np.int64) for name in ("begins", "counts", "places", "rest_bytes")
    )
    ids, rests, out = np.array(changed.get("ids", [3, 9]), np.uint32), np.ones((1, 64), np.uint8), poisoned(1, 64)[0]
    before = out.copy()
    with pytest.raises(error):
        append_rows(make_table(9, 10), ids, 3, begins, counts, places, rests, rest_bytes, out)
    np.testing.assert_array_equal(out, before)
    np.testing.assert_array_equal(rest_bytes, given["rest_bytes"])


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_many_rows_are_copied_whole_on_any_number_of_threads(threads: int) -> None:
    source = make_table(30_000, 200)
    from_rows = np.random.default_rng(2).integers(0, 30_000, 40_000)
    out = poisoned(40_000, 200)
    copy_rows(source, from_rows, out, None, threads)
    np.testing.assert_array_equal(out, source[from_rows])


@pytest.mark.parametrize(
    ("from_rows", "to_rows"),
    [([10], None), ([-1], None), (None, [0] * 9 + [4]), ([1], [4]), ([1], [-1]), ([0] * 5, None)],
)
def test_rows_outside_either_side_are_refused_before_anything_is_copied(
    from_rows: list[int] | None, to_rows: list[int] | None
) -> None:
    out = poisoned(4, 8)
    with pytest.raises(IndexError, match=r"outside its|has 4 rows"):
        copy_rows(
            make_table(10, 8),
            None if from_rows is None else np.array(from_rows),
            out,
            None if to_rows is None else np.array(to_rows),
        )
    assert np.all(out == 0xA5)


def test_rows_of_unequal_width_or_number_are_refused() -> None:
    with pytest.raises(ValueError, match="equally wide"):
        copy_rows(make_table(4, 8), None, poisoned(4, 9), None)
    with pytest.raises(ValueError, match="equally long"):
        copy_rows(make_table(4, 8), np.array([1, 2]), poisoned(4, 8), np.array([0]))


def test_a_destination_row_named_twice_is_refused() -> None:
    out = poisoned(4, 8)
    for threads in (1, 4):
        with pytest.raises(ValueError, match="destination row 2 is named twice"):
            copy_rows(make_table(4, 8), None, out, np.array([1, 2, 3, 2]), threads)
    assert np.all(out == 0xA5)


def test_source_and_destination_must_not_overlap() -> None:
    memory = make_table(20, 8)
    before = memory.copy()
    for source, out in (
        (memory[:10], memory[9:19]),
        (memory[1:11], memory[:10]),
        (memory, memory),
        (memory[::2][:6], memory[5:11]),
    ):
        with pytest.raises(ValueError, match="overlap: copy into other memory"):
            copy_rows(source, None, out, None)
    np.testing.assert_array_equal(memory, before)
    copy_rows(memory[:10], None, memory[10:], None)
    np.testing.assert_array_equal(memory[10:], before[:10])


def peak_bytes(work: Callable[[], object]) -> int:
    """Bytes by which the process grows at most while this works."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
    except OSError as error:
        pytest.skip(f"the peak of resident memory cannot be reset here: {error}")
    before = psutil.Process().memory_info().rss
    work()
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) * 1024 - before


@pytest.mark.fast("uring")
def test_a_read_takes_56_bytes_an_id_at_most(engine: Engine, tmp_path: Path) -> None:
    num_ids = 1 << 18
    (tmp_path / "features.bin").write_bytes(bytes(num_ids))
    file = File(str(tmp_path / "features.bin"), "read", False)
    reader = RowReader(engine, file, num_ids, 1, 1, -1, 4096, 1 << 16, POOL)
    ids = keyed_permutation(num_ids, 1, 2, 3)
    out = poisoned(num_ids, 1)
    reader.read(ids[:1000], out[:1000])  # staging stays in the pool
    assert peak_bytes(lambda: reader.read(ids, out)) < 56 * num_ids + (3 << 20)


def test_a_permutation_takes_16_bytes_an_item() -> None:
    num_items = 1 << 20
    assert peak_bytes(lambda: keyed_permutation(num_items, 1, 2, 3)) < 16 * num_items + (3 << 20)
