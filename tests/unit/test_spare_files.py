"""Disk space of dropped tables goes to the next ones, and all stays within the plan's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop.errors import DestinationError
from diskhop.planning.predict import StreamedPlan
from diskhop.planning.predict_typed import TypedPassesPlan
from diskhop.predicting.streamed.spare_files import SpareFiles
from diskhop.predicting.streamed.table_work import TableWork
from diskhop.runtime.tasks import WorkFolder
from tests.batched import build_graph
from tests.graphs import memory_folder
from tests.streamed_networks import build_network, streamed
from tests.typed_passes import in_passes, make_relation_network, make_relations


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


def table_bytes(work: Path) -> int:
    """The bytes of all tables in a folder."""
    return sum(path.stat().st_size for path in work.rglob("*.bin") if path.is_file())


@contextmanager
def measured(work: Path) -> Iterator[list[int]]:
    """The bytes of all tables in a folder after each write."""
    seen = list[int]()

    def counted(write: Callable[..., None]) -> Callable[..., None]:
        def counting(*args: Any, **options: Any) -> None:
            write(*args, **options)
            seen.append(table_bytes(work))

        return counting

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableWork, "write", counted(TableWork.write))
        yield seen


@pytest.mark.fast("sage")
@pytest.mark.parametrize("model", ["sage", "gcn", "gat"])
def test_tables_stay_within_the_planned_disk_space(folder: Path, model: str) -> None:
    """Widths grow and shrink from layer to layer, with several blocks."""
    rng = np.random.default_rng(0)
    num_nodes = 9000  # three groups
    graph = build_graph(folder / "graph", rng.integers(0, num_nodes, (2, 20_000)), rng.normal(size=(num_nodes, 100)))
    network = build_network(model, 100, 4, layers=4, hidden=40, heads=1)
    again = streamed(graph, network, folder / "other", wanted=(1, 2, 4))
    for wanted in [(4,), (1, 2, 4)]:
        plans, work = list[StreamedPlan](), folder / f"work {len(wanted)}"
        with measured(WorkFolder(work).path) as seen:
            found = streamed(graph, network, work, wanted=wanted, memory_bytes=1_300_000, plans=plans, keep=True)
        assert any(layer.num_blocks > 1 for layer in plans[0].layers)
        assert 0.5 * plans[0].work_bytes <= max(seen) <= plans[0].work_bytes
        assert 0 < table_bytes(WorkFolder(work).path) <= plans[0].result_bytes
        assert set(found) == set(wanted)
        for number, rows in found.items():
            np.testing.assert_array_equal(rows, again[number])


@pytest.mark.fast(1)
@pytest.mark.parametrize("wanted", [(3,), (1, 3)])
def test_tables_of_relations_stay_within_the_planned_disk_space(folder: Path, wanted: tuple[int, ...]) -> None:
    graph = make_relations(folder, {"a": 9000, "b": 4500, "c": 5}, num_edges=14_000, hidden=40)
    network = make_relation_network(graph, "rgcn", 6, 40, layers=3)
    plans = list[TypedPassesPlan]()
    with measured(WorkFolder(folder / "work").path) as seen:
        in_passes(graph, network, folder / "work", wanted=wanted, memory_bytes=1_500_000, plans=plans)
    assert any(len(blocks) > 1 for blocks in plans[0].blocks)
    assert 0.9 * plans[0].work_bytes <= max(seen) <= plans[0].work_bytes
