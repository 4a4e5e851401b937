"""Claims about the memory of work without training: budget and overhead fit, or one line says what would."""

from __future__ import annotations

import pytest

from diskhop.errors import BudgetError
from diskhop.planning.overhead import LOADED_BYTES, MeasuredMemory, MemoryWish
from diskhop.runs import fitted_memory
from diskhop.runs.fitted_memory import PlainNeeds, WorkMemory
from diskhop.system.limits import MemoryLimit

MB = 10**6
PROGRAM = MeasuredMemory(program=100 * MB, shared=40 * MB, parameters=0, step=0)


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitted_memory, "memory_limit", lambda: MemoryLimit(1000 * MB, "memory.max of /box"))
    monkeypatch.setattr(fitted_memory, "default_memory_bytes", lambda: 450 * MB)


def needs(processes: int = 1, model_bytes: int | None = None) -> PlainNeeds:
    return PlainNeeds(program=PROGRAM, threads=2, processes=processes, model_bytes=model_bytes)


def test_processes_share_pages_of_libraries_and_each_has_the_model() -> None:
    alone, both = needs().predict(0), needs(processes=2).predict(0)
    assert (alone.step, alone.copies) == (0, 0)
    assert both.program - alone.program == 60 * MB
    with_model = needs(processes=2, model_bytes=10 * MB).predict(0)
    assert with_model.step >= 2 * (LOADED_BYTES + 10 * MB)


def test_a_total_is_budget_and_overhead() -> None:
    work, lines = WorkMemory(needs(), MemoryWish(total=500 * MB)), list[str]()
    work.describe(lines.append)
    overhead_bytes = work.result()["predicted_overhead_bytes"]
    assert work.budget_bytes + overhead_bytes == 500 * MB
    assert lines == [
        "total memory 392 MB + 108 MB = 500 MB: budget + predicted overhead (Python and libraries 108 MB); this "
        "process may use 1 GB, by memory.max of /box"
    ]


def test_a_default_leaves_room_for_the_error_of_the_prediction() -> None:
    assert WorkMemory(needs(), MemoryWish()).budget_bytes == 450 * MB
    work = WorkMemory(needs(model_bytes=300 * MB), MemoryWish())
    assert work.budget_bytes + work.result()["predicted_overhead_bytes"] <= 850 * MB


def test_a_named_budget_with_ample_room_is_not_predicted() -> None:
    work, lines = WorkMemory(needs(), MemoryWish(memory=50 * MB)), list[str]()
    work.describe(lines.append)
    assert (work.budget_bytes, work.result(), lines) == (50 * MB, {}, [])
    with pytest.raises(BudgetError, match=r"^too small$"), work.explained():
        raise BudgetError("too small", 60 * MB)


@pytest.mark.parametrize(
    ("wish", "smallest_bytes", "line"),
    [
        (MemoryWish(total=200 * MB), 300 * MB, r"^--total-memory 200 MB is too small: .* is --total-memory 408MB$"),
        (MemoryWish(), 500 * MB, r"^too small, or --total-memory 608MB$"),
        (MemoryWish(), 900 * MB, r"^graph data need 900 MB .* more than the 1 GB .*; give it 216 MB or more$"),
        (MemoryWish(memory=300 * MB), 400 * MB, r"^too small$"),
    ],
)
def test_a_budget_too_small_for_graph_data_is_explained(wish: MemoryWish, smallest_bytes: int, line: str) -> None:
    with pytest.raises(BudgetError, match=line), WorkMemory(needs(), wish).explained():
        raise BudgetError("too small", smallest_bytes)


@pytest.mark.parametrize(
    ("wish", "line"),
    [
        (MemoryWish(total=2000 * MB), r"^--total-memory 2 GB is more than .*: use --total-memory 1000MB$"),
        (MemoryWish(memory=2000 * MB), r"are 2.11 GB, more than the 1 GB .*: use --memory 892MB$"),
        (MemoryWish(total=100 * MB), r"^predicted overhead of 108 MB .* leaves nothing .*; give it 216 MB or more$"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(wish: MemoryWish, line: str) -> None:
    with pytest.raises(BudgetError, match=line):
        WorkMemory(needs(), wish)
