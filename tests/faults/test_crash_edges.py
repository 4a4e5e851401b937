"""An import of edges that stopped anywhere resumes with the same command, and gives the same bytes."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.dataset.sort.plan import SortLimits
from diskhop.errors import SourceError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.importing.text import tasks as edge_tasks
from diskhop.importing.tools import ImportLimits
from diskhop.io.faults import CrashInjector, Lost
from tests.crashes import EVERY, Crashes
from tests.graphs import folder_bytes, memory_folder, threads_engine

# Mapped through a set; listed by DuckDB.
TEXTS = {
    "integers": "\n".join(f"{n % 7 * 3},{n % 5}" for n in range(90)),
    "names": "\n".join(f"n{n % 7 * 3},n{n % 5}" for n in range(90)),
}
NUM_SLICES = 6
# Names are listed in the main thread: there a signal comes, in the midst of a query of seconds. Where that thread runs
# the query itself, DuckDB ends it before it looks at signals.
INTERRUPTED = """
import os, signal, sys, threading
from diskhop.cli import main
from diskhop.importing.numbering.tasks import ListIds
from diskhop.runtime.duck import Duck

number = int(sys.argv.pop())

def write(task, path, tools):
    threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
    task.duck.fetch("SELECT count(DISTINCT hash(range)) FROM range(50000000)")

ListIds.write = write
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's children in the background ignore it
main()
"""


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with memory_folder(tmp_path_factory.mktemp("crash")) as folder:
        yield folder


@pytest.fixture(params=TEXTS)
def text(request: pytest.FixtureRequest) -> bytes:
    return TEXTS[str(request.param)].encode()


@pytest.fixture
def source(tmp_path: Path, text: bytes) -> Path:
    path = tmp_path / "edges.csv.gz"
    path.write_bytes(gzip.compress(text))
    return path


@pytest.fixture
def limits(text: bytes) -> ImportLimits:
    """NUM_SLICES slices of the source."""
    slice_bytes = len(text) // NUM_SLICES + 1
    return ImportLimits(pairs_slice_bytes=slice_bytes, rows_slice_bytes=slice_bytes)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The slices that were parsed, as they are."""
    names: list[str] = []
    for kind in (edge_tasks.ParsePairs, edge_tasks.ParseRows):
        write = kind.write

        def counted(task: Any, *arguments: Any, write: Any = write) -> None:
            names.append(task.name)
            write(task, *arguments)

        monkeypatch.setattr(kind, "write", counted)
    return names


def import_edges(source: Path, limits: ImportLimits, graph: Path, injector: CrashInjector | None = None) -> None:
    import_graph(
        source,
        graph,
        engine=threads_engine() if injector is None else Engine("threads", 1, injector.native),
        budget=Budget(200 << 20),
        threads=1,
        injector=injector,
        limits=limits,
        options=ImportOptions(undirected=True, duplicates="drop"),
    )


@pytest.mark.fast(2)
@pytest.mark.parametrize("lost", ["names", "data"])
@EVERY
def test_after_any_crash_the_same_import_ends_the_same(
    tmp_path: Path, source: Path, limits: ImportLimits, lost: Lost, every: int
) -> None:
    for graph in Crashes(tmp_path, partial(import_edges, source, limits)).each(every, lost):
        if not graph.exists():
            import_edges(source, limits, graph)


@pytest.mark.fast("integers")
def test_what_was_parsed_is_not_parsed_again(
    tmp_path: Path, source: Path, limits: ImportLimits, parsed: list[str]
) -> None:
    crashes = Crashes(tmp_path, partial(import_edges, source, limits))
    assert len(parsed) == NUM_SLICES
    most_saved = 0
    parsed.clear()
    for graph in crashes.each(7, "names"):
        num_before = len(parsed)
        if not graph.exists():
            import_edges(source, limits, graph)
            # One slice may have been on its way.
            assert len(parsed) <= NUM_SLICES + 1
            most_saved = max(most_saved, num_before)
        parsed.clear()
    assert most_saved == NUM_SLICES


def test_a_source_that_changed_is_parsed_again(
    tmp_path: Path, source: Path, text: bytes, limits: ImportLimits, parsed: list[str]
) -> None:
    source.write_bytes(gzip.compress(text + b"\n1"))
    with pytest.raises(SourceError, match=r"edges\.csv\.gz, line 91: .* two columns") as caught:
        import_edges(source, limits, tmp_path / "graph")
    assert caught.value.__notes__ == [
        f"finished work is kept in {tmp_path / '.graph.work'}: it is reused after the correction"
    ]
    assert (tmp_path / ".graph.work").is_dir()
    parsed.clear()
    source.write_bytes(gzip.compress(text + b"\n"))
    import_edges(source, limits, tmp_path / "graph")
    assert len(parsed) == NUM_SLICES
    import_edges(source, limits, tmp_path / "other")
    assert folder_bytes(tmp_path / "graph") == folder_bytes(tmp_path / "other")
    assert not (tmp_path / ".graph.work").exists()


@pytest.mark.slow
def test_kill_9_leaves_the_slices_that_were_done(tmp_path: Path, parsed: list[str]) -> None:
    source = tmp_path / "edges.csv"
    source.write_text("".join(f"{n % 1000},{n % 777}\n" for n in range(3_000_000)))
    graph = tmp_path / "graph"
    command = ["import", str(source), str(graph), "--memory", "120MB", "--threads", "1"]
    child = subprocess.Popen([sys.executable, "-c", "from diskhop.cli import main; main()", *command])
    pairs = tmp_path / ".graph.work" / "pairs"
    while child.poll() is None and not list(pairs.glob("0*")):
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    num_done = len(list(pairs.glob("0*")))
    assert num_done > 0
    import_graph(source, graph, engine=threads_engine(), budget=Budget(120 * 10**6), threads=1)
    num_slices = -(-source.stat().st_size // ImportLimits().pairs_slice_bytes)
    assert len(parsed) == num_slices - num_done
    import_graph(source, tmp_path / "other", name="edges", engine=threads_engine())
    assert folder_bytes(graph) == folder_bytes(tmp_path / "other")


def test_a_run_with_another_budget_goes_on_with_the_same_edges(tmp_path: Path) -> None:
    """Names are joined in groups as large as the budget lets them be; edges stay in the order of the lines."""
    sort = SortLimits(in_memory_bytes=0, spill_bytes=1 << 14, bucket_keys=1 << 10, least_block_bytes=4096)
    limits = ImportLimits(rows_slice_bytes=1 << 13, sort=sort)
    source = tmp_path / "edges.csv"
    source.write_text("".join(f"n{n * 7919 % 501},n{n * 104729 % 503}\n" for n in range(6000)))
    import_edges(source, limits, tmp_path / "whole")

    class StopsAtSpill:
        def check(self, kind: str, path: str) -> None:
            if kind == "rename" and Path(path).name == "spill-00001":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_graph(
            source,
            tmp_path / "graph",
            engine=threads_engine(),
            budget=Budget(200 << 20),
            threads=1,
            injector=StopsAtSpill(),
            limits=replace(limits, rows_group_share=1 << 40),  # one slice per group, as with a smaller budget
            options=ImportOptions(undirected=True, duplicates="drop"),
        )
    assert (tmp_path / ".graph.work" / "sort-edge" / "spill-00000").exists()
    import_edges(source, limits, tmp_path / "graph")
    for name in ("edges/edge/indptr.bin", "edges/edge/indices.bin", "edges/edge/edge_ids.bin"):
        assert (tmp_path / "graph" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.fast("2")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_duckdb_runs_ends_with_one_line(tmp_path: Path, number: int) -> None:
    source = tmp_path / "edges.csv"
    source.write_text(TEXTS["names"])
    command = ["import", str(source), str(tmp_path / "graph"), "--memory", "300MB", str(int(number))]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *command], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 128 + number
    *_decisions, estimate, error = done.stderr.splitlines()
    assert estimate.startswith(f"{source}, ")
    assert error.startswith("diskhop: interrupted; finished work is kept in ")
