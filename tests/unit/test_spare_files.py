"""Disk space of dropped tables goes to the next ones, and all stays within the plan's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.errors import DestinationError
from diskhop.planning.predict import StreamedPlan
from diskhop.predicting.streamed import compute
from diskhop.predicting.streamed.spare_files import SpareFiles
from tests.batched import build_graph
from tests.graphs import memory_folder
from tests.streamed_networks import build_network, streamed


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with memory_folder(tmp_path) as folder:
        yield folder


def files(folder: Path, **sizes: int) -> SpareFiles:
    spares = SpareFiles(None)
    for name, num_bytes in sizes.items():
        (folder / name).write_bytes(bytes(num_bytes))
        spares.add(folder / name)
    return spares


@pytest.mark.parametrize(
    ("wanted", "name"), [(1, "small"), (10, "small"), (11, "middle"), (30, "large"), (99, "large")]
)
def test_the_smallest_file_that_is_large_enough_is_taken_or_else_the_largest(
    folder: Path, wanted: int, name: str
) -> None:
    spares = files(folder, middle=20, small=10, large=30)
    assert spares.take(wanted) == folder / name
    assert spares.num_bytes == 60 - (folder / name).stat().st_size


@pytest.mark.parametrize(
    ("most", "left"),
    [
        (60, [10, 20, 30]),
        (99, [10, 20, 30]),
        (55, [5, 20, 30]),
        (45, [15, 30]),
        (30, [30]),
        (7, [7]),
        (0, []),
        (-5, []),
    ],
)
def test_the_smallest_files_are_cut_first(folder: Path, most: int, left: list[int]) -> None:
    spares = files(folder, middle=20, small=10, large=30)
    spares.shrink_to(most)
    assert sorted(path.stat().st_size for path in folder.iterdir()) == left
    assert spares.num_bytes == sum(left)


def test_all_files_are_gone_at_the_end_and_tables_that_stay_are_cut(folder: Path) -> None:
    with files(folder, small=10, large=30) as spares:
        (folder / "table").write_bytes(bytes(50))
        spares.clear({folder / "table": 40})
        assert spares.take(1) is None
    assert [(path.name, path.stat().st_size) for path in folder.iterdir()] == [("table", 40)]


def test_a_file_that_cannot_be_removed_is_an_error(folder: Path) -> None:
    spares = files(folder, small=10)
    (folder / "small").unlink()
    spares.clear({})
    with pytest.raises(DestinationError, match="cannot be written"):
        spares.__exit__(None, None, None)


@pytest.mark.parametrize("model", ["sage", "gcn", "gat"])
@pytest.mark.parametrize("wanted", [(4,), (1, 2, 4)])
def test_tables_stay_within_the_planned_disk_space(
    folder: Path, monkeypatch: pytest.MonkeyPatch, model: str, wanted: tuple[int, ...]
) -> None:
    """Widths grow and shrink from layer to layer, with several blocks."""
    rng = np.random.default_rng(0)
    num_nodes = 9000  # three groups
    graph = build_graph(folder / "graph", rng.integers(0, num_nodes, (2, 20_000)), rng.normal(size=(num_nodes, 100)))
    network = build_network(model, 100, 4, layers=4, hidden=40, heads=1)
    plans, seen = list[StreamedPlan](), list[int]()
    write_table, write_band = compute.Computation._write_table, compute.Computation._write_band

    def used() -> None:
        tables = [path for path in (folder / "work").rglob("*.bin") if path.is_file()]
        seen.append(sum(path.stat().st_size for path in tables))

    def counted(write: Callable[..., None]) -> Callable[..., None]:
        def counting(*args: Any, **options: Any) -> None:
            write(*args, **options)
            used()

        return counting

    monkeypatch.setattr(compute.Computation, "_write_table", counted(write_table))
    monkeypatch.setattr(compute.Computation, "_write_band", counted(write_band))
    found = streamed(graph, network, folder / "work", wanted=wanted, memory_bytes=1_300_000, plans=plans, keep=True)
    assert any(layer.num_blocks > 1 for layer in plans[0].layers)
    assert max(seen) <= plans[0].work_bytes
    used()
    assert seen[-1] <= plans[0].result_bytes
    monkeypatch.undo()
    again = streamed(graph, network, folder / "other", wanted=wanted)
    for number, rows in found.items():
        np.testing.assert_array_equal(rows, again[number])
