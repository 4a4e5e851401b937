"""Predictions that fail or crash at any write, fsync or rename: nothing, or all, and the same bytes once resumed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop._native import Engine, FaultInjector, FaultRule
from diskhop.dataset.dataset import Dataset
from diskhop.errors import DestinationError, DiskhopError
from diskhop.io.faults import CrashInjector, Lost
from diskhop.predicting.sizes import FORMATS
from tests.crashes import crashes_of
from tests.graphs import folder_bytes, memory_folder, threads_engine
from tests.predictions import TINY, check_manifest, node_dataset, rows_of, write


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with memory_folder(tmp_path) as folder:
        yield folder


@pytest.fixture
def dataset(folder: Path) -> Dataset:
    """Names in hot order, for which every format does the most."""
    names = [f"node\t{number}" for number in range(11)]
    return node_dataset(folder / "graph", names, rows=np.random.default_rng(0).permutation(11))


@pytest.mark.fast(3)
@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("lost", ["names", "data"])
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_crash_leaves_nothing_or_all_and_resumes(
    folder: Path, dataset: Dataset, format_name: str, lost: Lost, step: int
) -> None:
    tables = rows_of(dataset)
    options: dict[str, Any] = {"format_name": format_name, "limits": TINY}
    write(folder / "whole", dataset, tables, **options)
    expected = folder_bytes(folder / "whole")

    def run(root: Path, engine: Engine, injector: CrashInjector) -> None:
        write(root / "out", dataset, tables, engine=engine, injector=injector, threads=1, **options)

    for crash in crashes_of(folder, step, lost, run):
        after = crash.after
        was_there = (after / "out").exists()
        if not was_there:
            assert not crash.finished
            write(after / "out", dataset, tables, **options)
        assert folder_bytes(after / "out") == expected
        check_manifest(after / "out")
        # The work folder goes after the predictions have come: a crash between them leaves both.
        assert {path.name for path in after.iterdir()} - {".out.work"} == {"out"}
        assert was_there or not (after / ".out.work").exists()
    assert crash.number > 40


@pytest.mark.fast(3)
@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("lost", ["names", "data"])
def test_a_crash_while_others_are_replaced_leaves_one_or_the_other(
    folder: Path, dataset: Dataset, format_name: str, lost: Lost
) -> None:
    tables, newer = rows_of(dataset), rows_of(dataset, seed=1)
    options: dict[str, Any] = {"format_name": format_name, "limits": TINY}
    expected = []
    for number, rows in enumerate((tables, newer)):
        write(folder / f"whole-{number}", dataset, rows, key=str(number), **options)
        expected.append(folder_bytes(folder / f"whole-{number}"))
    replacing: dict[str, Any] = {"key": "1", "overwrite": True, **options}

    def prepare(root: Path) -> None:
        write(root / "out", dataset, tables, key="0", **options)

    def run(root: Path, engine: Engine, injector: CrashInjector) -> None:
        write(root / "out", dataset, newer, engine=engine, injector=injector, threads=1, **replacing)

    for _, after, _ in crashes_of(folder, 3, lost, run, prepare):
        assert folder_bytes(after / "out") in expected
        write(after / "out", dataset, newer, **replacing)
        assert folder_bytes(after / "out") == expected[1]
        assert [path.name for path in after.iterdir()] == ["out"]


@pytest.mark.fast(6)
@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("kind", ["no_space", "io_error"])
@pytest.mark.parametrize("counted", ["writes", "fsyncs", "renames"])
@pytest.mark.parametrize("step", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_every_change_that_fails_is_one_line(
    folder: Path, dataset: Dataset, format_name: str, kind: str, counted: str, step: int
) -> None:
    tables = rows_of(dataset)
    counting = FaultInjector([])
    whole = write(
        folder / "whole",
        dataset,
        tables,
        format_name=format_name,
        limits=TINY,
        engine=threads_engine(counting),
        injector=counting,
    )
    (folder / "root").mkdir()
    destination = folder / "root" / "out"
    assert counting.count(counted) > 0
    for nth in range(1, counting.count(counted) + 1, step):
        injector = FaultInjector([FaultRule(kind, counted, nth)])
        with pytest.raises(DiskhopError) as caught:
            write(
                destination,
                dataset,
                tables,
                format_name=format_name,
                limits=TINY,
                engine=threads_engine(injector),
                injector=injector,
                threads=1,
            )
        assert "\n" not in str(caught.value)
        assert str(folder / "root") in str(caught.value)
        if kind == "no_space":
            assert isinstance(caught.value, DestinationError)
        if destination.exists():  # the last changes remove the work folder
            assert folder_bytes(destination) == folder_bytes(whole.path)
            write(destination, dataset, tables, format_name=format_name, limits=TINY, overwrite=True)
        else:
            write(destination, dataset, tables, format_name=format_name, limits=TINY)
        assert folder_bytes(destination) == folder_bytes(whole.path)
        assert [path.name for path in (folder / "root").iterdir()] == ["out"]
        write(destination, dataset, tables, format_name=format_name, limits=TINY, overwrite=True)
        for path in destination.iterdir():
            path.unlink()
        destination.rmdir()
