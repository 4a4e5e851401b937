"""A call or an allocation that fails in an import: one line, then the same bytes. The campaign has all jobs."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from diskhop.errors import DestinationError
from diskhop.io.atomic import allocate
from tests.campaign import allocations, calls, disks
from tests.campaign.cases import Case, Tries
from tests.campaign.preloaded import Server, job_named, run_preloaded
from tests.graphs import memory_folder

NUM_TRIES = 6
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the library of failing calls needs g++")


def case_of(cases: tuple[Case, ...], kind: str, what: str) -> Case:
    (found,) = (case for case in cases if case.kind == kind and case.what == what)
    return found


@needs_compiler
@pytest.mark.parametrize(
    ("cases", "kind", "what"),
    [
        (calls.CASES, "calls that fail", "import, threads"),
        (allocations.CASES, "allocations that fail", "import, threads"),
        pytest.param(disks.CASES, "two writers", "import", marks=pytest.mark.slow),
        pytest.param(disks.CASES, "a folder moved or removed", "import", marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_import_that_meets_a_fault_ends_with_a_line_and_is_completed(
    tmp_path: Path, cases: tuple[Case, ...], kind: str, what: str
) -> None:
    with memory_folder(tmp_path) as folder:
        assert list(case_of(cases, kind, what).run(Tries(0, NUM_TRIES, 0, folder))) == [""] * NUM_TRIES


def tries_of(tries: Tries) -> Generator[str]:
    """Imports that allocate and forget, and one that does not; see run_preloaded()."""
    server = Server(job_named("import"), tries.folder)
    server.run_without_fault()
    for action in (lambda: server.library.malloc(1000), lambda: None):
        yield server.run_with_fault(action)


@needs_compiler
def test_memory_that_a_job_loses_is_found(tmp_path: Path) -> None:
    with memory_folder(tmp_path) as folder:
        leaks, none = run_preloaded(__name__, Tries(0, 2, 0, folder))
    assert leaks.startswith("leaks at 1 places, of which ")
    assert "libffi" in leaks
    assert not none


def test_space_cannot_be_allocated_in_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match=r"gone: cannot be written: No such file .*; choose a destination"):
        allocate(tmp_path / "gone", 0, 10)


def test_calls_are_spread_over_all() -> None:
    for total in (1, 2, 10, 308, 1365):
        assert sorted(calls.spread(number, total) for number in range(total)) == list(range(total))
