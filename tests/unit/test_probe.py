"""Claims about the device model: it recalls its grid, follows its law between, survives JSON; the probe cleans up."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import diskhop.disk.probe as probe_module
from diskhop.disk.measure import sequential_offsets
from diskhop.disk.model import (
    GRID_BYTES,
    GRID_DEPTHS,
    DiskModel,
    assumed_disk_model,
    fit_additive_law,
    fit_disk_model,
)
from diskhop.disk.probe import ProbeLimits, cache_path, remembered_model
from diskhop.disk.report import report_disk
from diskhop.errors import ConfigError, FormatError, ReadError

overheads = st.floats(1e-6, 1e-2)
bandwidths = st.floats(1e7, 1e11)


LIMITS = ProbeLimits(
    file_bytes=64 << 20,
    num_passes=1,
    read_seconds=0.0,
    sequential_seconds=0.0,
    grid_bytes=(512, 4096),
    grid_depths=(1, 32),
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache file private to the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def probe(path: Path, *, limits: ProbeLimits = LIMITS, **options: Any) -> DiskModel:
    """Probe for a tenth of a second."""
    return probe_module.probe(path, limits=limits, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "disk"
    path.mkdir()
    return path


def law_model(overhead: float, bytes_per_second: float) -> DiskModel:
    """The model of a device that keeps the additive law from depth 32 on and scales with depth below."""
    seconds = [
        [(overhead + size / bytes_per_second) * max(1, 32 / depth) for depth in GRID_DEPTHS] for size in GRID_BYTES
    ]
    return fit_disk_model(
        seconds,
        read_bytes=GRID_BYTES,
        read_depths=GRID_DEPTHS,
        sequential_read_bytes_per_second=bytes_per_second,
        sequential_write_bytes_per_second=bytes_per_second,
        engine="threads",
        direct=True,
        note="made up",
    )


@given(overhead=overheads, bandwidth=bandwidths)
def test_the_fit_finds_the_law_that_made_the_times(overhead: float, bandwidth: float) -> None:
    sizes = np.array(GRID_BYTES, np.float64)
    fitted_overhead, fitted_bandwidth = fit_additive_law(sizes.tolist(), (overhead + sizes / bandwidth).tolist())
    np.testing.assert_allclose(fitted_overhead + sizes / fitted_bandwidth, overhead + sizes / bandwidth, rtol=1e-6)


def test_the_fit_never_finds_a_negative_overhead() -> None:
    overhead, bandwidth = fit_additive_law([1000, 2000, 4000], [1e-6, 3e-6, 9e-6])
    assert overhead == 0
    assert bandwidth > 0


@given(
    overhead=overheads,
    bandwidth=bandwidths,
    num_bytes=st.integers(512, 8 << 20),
    depth=st.integers(1, 1000),
)
def test_predictions_follow_the_law_between_the_grid_and_beyond(
    overhead: float, bandwidth: float, num_bytes: int, depth: int
) -> None:
    predicted = law_model(overhead, bandwidth).predict_seconds(num_bytes, depth)
    assert predicted == pytest.approx((overhead + num_bytes / bandwidth) * max(1, 32 / depth), rel=1e-6)


@given(row=st.integers(0, len(GRID_BYTES) - 1), column=st.integers(0, len(GRID_DEPTHS) - 1), seed=st.integers(0, 99))
def test_predictions_recall_what_was_measured(row: int, column: int, seed: int) -> None:
    seconds = np.random.default_rng(seed).uniform(1e-6, 1e-3, (len(GRID_BYTES), len(GRID_DEPTHS)))
    cells = tuple(tuple(times) for times in seconds.tolist())
    model = dataclasses.replace(assumed_disk_model(), read_seconds=cells)
    assert model.predict_seconds(GRID_BYTES[row], GRID_DEPTHS[column]) == pytest.approx(seconds[row, column])
    assert model.predict_seconds(1, GRID_DEPTHS[column]) == pytest.approx(seconds[0, column])


def test_a_gap_breaks_even_where_it_costs_one_request() -> None:
    model = law_model(10e-6, 4e9)
    assert model.break_even_gap_bytes == pytest.approx(40_000, rel=1e-3)


def test_models_survive_json() -> None:
    for model in (law_model(10e-6, 4e9), assumed_disk_model("uring", "no room")):
        assert DiskModel.from_dict(json.loads(json.dumps(model.to_dict()))) == model


@pytest.mark.parametrize(
    "damage",
    [
        {"read_seconds": [[1.0]]},
        {"read_seconds": "fast"},
        {"bytes_per_second": 0},
        {"bytes_per_second": "nan"},
        {"overhead_seconds": -1},
        {"source": "guessed"},
        {"read_bytes": [4096, 512, 1, 2, 3, 4]},
    ],
)
def test_damaged_models_are_refused(damage: dict[str, object]) -> None:
    with pytest.raises(FormatError, match="disk model"):
        DiskModel.from_dict({**law_model(1e-5, 4e9).to_dict(), **damage})


def test_the_probe_measures_once_and_leaves_nothing(folder: Path) -> None:
    model = probe(folder)
    assert model.source == "measured", model.note
    assert model.bytes_per_second > 0
    assert list(folder.iterdir()) == []
    file = folder / "file"
    file.touch()
    assert probe(file) == model, "a file stands for its folder, and what is known is not measured again"
    assert probe(folder, measure_again=True) != model


def test_each_engine_has_a_model_of_its_own(folder: Path) -> None:
    threads = probe(folder, engine="threads")
    assert threads.engine == "threads"
    auto = probe(folder)
    assert auto.engine in ("uring", "threads")
    assert probe(folder, engine="threads") == threads


@pytest.mark.fast(2)
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff", b'{"format": 1, "devices": {"a": {}}}', b'{"format": 99}']
)
def test_a_damaged_cache_is_measured_again(folder: Path, content: bytes) -> None:
    probe(folder)
    cache_path().write_bytes(content)
    assert probe(folder).source == "measured"
    assert json.loads(cache_path().read_text())["devices"]
    assert [path.name for path in cache_path().parent.iterdir()] == [cache_path().name]


def test_who_cannot_wait_gets_what_was_measured_before_or_an_assumption(folder: Path) -> None:
    assert remembered_model(folder, "threads").source == "assumed"
    assert not cache_path().exists()
    assert list(folder.iterdir()) == []
    measured = probe(folder, engine="threads")
    assert remembered_model(folder, "threads") == measured


def test_a_cache_that_cannot_be_written_is_no_error(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    assert probe(folder).source == "measured"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ReadError])
def test_an_interrupted_probe_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, interruption: type[BaseException]
) -> None:
    def stop(*_: object) -> float:
        raise interruption("now")

    monkeypatch.setattr(probe_module, "measure_read_seconds", stop)
    if interruption is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            probe(folder)
    else:
        assert probe(folder).source == "assumed"
    assert list(folder.iterdir()) == []


def test_an_existing_file_is_measured_and_nothing_written(folder: Path) -> None:
    # There is no room for a temporary file.
    limits = dataclasses.replace(LIMITS, file_bytes=0)
    existing = folder / "features.bin"
    existing.write_bytes(bytes((64 << 20) - 1))
    assumed = probe(folder, existing_file=existing, limits=limits)
    assert (assumed.source, assumed.overhead_seconds, assumed.bytes_per_second) == ("assumed", 10.5e-6, 2e9)
    assert "too little free space" in assumed.note
    existing.write_bytes(bytes(64 << 20))
    assert probe(folder, existing_file=existing, limits=limits).source == "measured"
    assert existing.read_bytes() == bytes(64 << 20)


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing: does not exist"):
        probe(tmp_path / "missing")


def test_the_report_says_what_to_expect(folder: Path) -> None:
    report = report_disk(folder, limits=LIMITS)
    assert json.loads(json.dumps(report.to_dict()))["device"]["bytes_per_second"] > 0
    rows = dict(report.to_rows())
    assert rows["engine"].startswith(report.engine)
    assert {"direct I/O", "disk model", "break-even gap", "disk"} <= set(rows)
    assert list(folder.iterdir()) == []


def test_sequential_offsets_wrap_at_the_end() -> None:
    groups = sequential_offsets(10 * 4096 + 5, 4096, 4)
    offsets = np.concatenate([next(groups) for _ in range(5)])
    np.testing.assert_array_equal(offsets, np.arange(20) % 10 * 4096)
