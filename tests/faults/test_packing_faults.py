"""Packing that stopped anywhere is resumed by the same call, and gives the same bytes; a full disk says so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from diskhop._native import CrashError, Engine, FaultInjector, FaultRule
from diskhop.dataset.dataset import Dataset
from diskhop.errors import DestinationError, DiskhopError
from diskhop.io.faults import CrashInjector, Lost
from tests.crashes import crash_numbers
from tests.graphs import folder_bytes, memory_folder
from tests.packed import pack_small
from tests.runs import small_graph

# Four batches of an epoch, which share rows two by two.
OPTIONS: dict[str, Any] = {"batch_size": 10, "fanout": (2, 2), "cache_bytes": 600, "epochs": 2}
DISK_BYTES = 560_000


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with memory_folder(tmp_path_factory.mktemp("packing")) as folder:
        yield folder


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return small_graph(tmp_path_factory.mktemp("graphs") / "sbm", num_nodes=80, num_edges=400, dim=129)


def layout_bytes(path: Path) -> dict[str, bytes]:
    """Files of a layout, without the seconds that making it took."""
    return {name: content for name, content in folder_bytes(path).items() if name != "took.json"}


def pack_at(root: Path, dataset: Dataset, nth: int) -> tuple[CrashInjector, Path | None]:
    root.mkdir()
    injector = CrashInjector(root, nth)
    engine = Engine("threads", 1, injector.native)
    try:
        packed = pack_small(dataset, root / "s", disk_bytes=DISK_BYTES, engine=engine, injector=injector, **OPTIONS)
    except CrashError:
        return injector, None
    return injector, packed.layout.path


@pytest.mark.fast("3-data")
@pytest.mark.parametrize("lost", ["names", "data"])
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_after_any_crash_packing_ends_the_same(tmp_path: Path, dataset: Dataset, every: int, lost: Lost) -> None:
    injector, path = pack_at(tmp_path / "whole", dataset, 0)
    injector.__exit__(None, None, None)
    assert path is not None
    expected = layout_bytes(path)
    assert any(b"segment" in content for content in expected.values())
    num_kept = 0
    crashes = crash_numbers(injector.num_changes, every, lost)
    for nth in crashes:
        injector, path = pack_at(tmp_path / f"{nth}", dataset, nth)
        assert path is None
        after = tmp_path / f"after-{nth}"
        after.mkdir()
        with injector:
            injector.write_survivors(after, lost)
        packed = pack_small(dataset, after / "s", disk_bytes=DISK_BYTES, **OPTIONS)
        num_kept += 0 < len(packed.steps) < 7
        assert layout_bytes(packed.layout.path) == expected
        assert {entry.name for entry in (after / "s").iterdir()} - {f".{packed.layout.path.name}.work"} == {
            packed.layout.path.name
        }
        shutil.rmtree(tmp_path / f"{nth}")
        shutil.rmtree(after)
    # Most of what was done before the crash is not done again.
    assert num_kept > len(crashes) // 4


@pytest.mark.fast("no_space")
@pytest.mark.parametrize("kind", ["no_space", "io_error"])
def test_every_write_that_fails_is_told_and_gone_on_from(tmp_path: Path, dataset: Dataset, kind: str) -> None:
    whole = pack_small(dataset, tmp_path / "whole", disk_bytes=DISK_BYTES, **OPTIONS).layout.path
    counting = FaultInjector([])
    pack_small(dataset, tmp_path / "counted", disk_bytes=DISK_BYTES, engine=Engine("threads", 1, counting), **OPTIONS)
    scratch = tmp_path / "s"
    for nth in range(1, counting.count("writes") + 1):
        injector = FaultInjector([FaultRule(kind, "writes", nth)])
        before = set(Path("/proc/self/fd").iterdir())
        expected = DestinationError if kind == "no_space" else DiskhopError
        with pytest.raises(expected, match=r"\.bin") as raised:
            pack_small(dataset, scratch, disk_bytes=DISK_BYTES, engine=Engine("threads", 1, injector), **OPTIONS)
        kept = [path.name for path in scratch.iterdir()]
        assert kept in ([], [f".{whole.name}.work"])
        if kept:
            assert any(f".{whole.name}.work" in note for note in raised.value.__notes__)
        raised.value.__traceback__ = None
        del raised
        assert len(set(Path("/proc/self/fd").iterdir()) - before) <= 1
        again = pack_small(dataset, scratch, disk_bytes=DISK_BYTES, **OPTIONS).layout.path
        assert layout_bytes(again) == layout_bytes(whole)
        assert [path.name for path in scratch.iterdir()] == [whole.name]
        shutil.rmtree(scratch)


def test_a_disk_that_cannot_hold_an_epoch_is_told_before_it_is_packed(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=30_000)
    told = SimpleNamespace(disk_usage=lambda _path: usage, rmtree=shutil.rmtree)
    monkeypatch.setattr("diskhop.io.atomic.shutil", told)
    with pytest.raises(DestinationError, match=r"the result takes .*, only 30 KB are free; free some space") as raised:
        pack_small(dataset, tmp_path / "s", disk_bytes=DISK_BYTES, **OPTIONS)
    (work,) = (tmp_path / "s").iterdir()
    assert any(str(work) in note for note in raised.value.__notes__)
    monkeypatch.undo()
    steps = [step["step"] for step in pack_small(dataset, tmp_path / "s", disk_bytes=DISK_BYTES, **OPTIONS).steps]
    assert steps == ["lay out epoch 0", "pack epoch 0", "lay out epoch 1", "pack epoch 1"]


def test_two_at_once_are_refused(tmp_path: Path, dataset: Dataset) -> None:
    entered: list[BaseException] = []

    class Second:
        def check(self, kind: str, path: str) -> None:
            if not entered and "epoch-0" in path:
                try:
                    pack_small(dataset, tmp_path / "s", disk_bytes=DISK_BYTES, **OPTIONS)
                except DestinationError as error:
                    entered.append(error)

    pack_small(dataset, tmp_path / "s", disk_bytes=DISK_BYTES, injector=Second(), **OPTIONS)
    assert f"process {os.getpid()} is writing to it" in str(entered[0])
