"""An export that fails, at any write, fsync or rename, is one line and leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from diskhop._native import Engine, FaultInjector, FaultRule
from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.errors import DestinationError, DiskhopError
from diskhop.exporting.formats import EXPORTS, export_dataset
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.io.faults import CrashInjector, Lost
from tests.crashes import crashes_of
from tests.graphs import folder_bytes, make_dataset, memory_folder, threads_engine


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with memory_folder(tmp_path) as folder:
        yield folder


def moved_dataset(folder: Path) -> Dataset:
    """One whose rows have to go back."""
    export_dataset(make_dataset(folder / "plain"), folder / "npy", format_name="numpy", engine=threads_engine())
    return import_graph(folder / "npy", folder / "dataset", options=ImportOptions(order="hot"), engine=threads_engine())


@pytest.mark.fast(8)
@pytest.mark.parametrize("format_name", EXPORTS)
@pytest.mark.parametrize("kind", ["no_space", "io_error"])
@pytest.mark.parametrize("counted", ["writes", "fsyncs", "renames"])
def test_every_change_that_fails_is_one_line_and_leaves_nothing(
    folder: Path, format_name: str, kind: str, counted: str
) -> None:
    dataset = moved_dataset(folder)
    counting = FaultInjector([])
    engine = threads_engine(counting)
    whole = export_dataset(dataset, folder / "whole", format_name=format_name, engine=engine, injector=counting)
    (folder / "root").mkdir()
    destination = folder / "root" / "out"
    assert counting.count(counted) > 0
    for nth in range(1, counting.count(counted) + 1):
        injector = FaultInjector([FaultRule(kind, counted, nth)])
        with pytest.raises(DiskhopError) as caught:
            export_dataset(
                dataset, destination, format_name=format_name, engine=threads_engine(injector), injector=injector
            )
        assert "\n" not in str(caught.value)
        assert str(folder / "root") in str(caught.value)
        assert not getattr(caught.value, "__notes__", [])
        if kind == "no_space":
            assert isinstance(caught.value, DestinationError)
        assert list((folder / "root").iterdir()) == []
    export_dataset(dataset, destination, format_name=format_name, engine=threads_engine())
    assert folder_bytes(destination) == folder_bytes(whole.path)


@pytest.mark.fast(4)
@pytest.mark.parametrize("format_name", EXPORTS)
@pytest.mark.parametrize("lost", ["names", "data"])
def test_a_crash_leaves_nothing_or_all(folder: Path, format_name: str, lost: Lost) -> None:
    dataset = moved_dataset(folder)
    whole = export_dataset(dataset, folder / "whole", format_name=format_name, engine=threads_engine())

    def run(root: Path, engine: Engine, injector: CrashInjector) -> None:
        export_dataset(dataset, root / "out", format_name=format_name, engine=engine, injector=injector)

    for _, after, finished in crashes_of(folder, 1, lost, run):
        if (after / "out").exists():
            assert folder_bytes(after / "out") == folder_bytes(whole.path)
        else:
            assert not finished
            export_dataset(dataset, after / "out", format_name=format_name, engine=threads_engine())
        assert [path.name for path in after.iterdir()] == ["out"]


@pytest.mark.parametrize("format_name", EXPORTS)
def test_a_full_disk_is_one_line_and_is_left_empty(tmp_path: Path, small_disk: Path, format_name: str) -> None:
    # Of bfloat16, which becomes twice as long: the space that is asked for up front is there. Tables are compressed.
    dim = 240 if format_name == "tables" else 120
    dataset = make_dataset(tmp_path / "dataset", num_nodes=3000, dim=dim, dtype="bfloat16")
    with pytest.raises(DestinationError) as caught:
        export_dataset(
            dataset, small_disk / "out", format_name=format_name, engine=threads_engine(), budget=Budget(1 << 30)
        )
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert "space" in str(caught.value)
    assert list(small_disk.iterdir()) == []
