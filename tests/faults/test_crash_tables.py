"""An import of tables that stopped anywhere resumes with the same command, and gives the same bytes."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from diskhop._native import Engine
from diskhop.budget import Budget
from diskhop.errors import SourceError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.importing.tables import tasks as table_tasks
from diskhop.importing.tools import ImportLimits
from diskhop.io.faults import CrashInjector, Lost
from tests.crashes import EVERY, Crashes
from tests.graphs import folder_bytes, memory_folder, threads_engine

NUM_EDGES = 60
NUM_GROUPS = 4
LIMITS = ImportLimits(edges_per_group=NUM_EDGES // NUM_GROUPS, most_edges_per_group=NUM_EDGES // NUM_GROUPS)
OPTIONS = ImportOptions(weight="w", time="t", undirected=True)


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with memory_folder(tmp_path_factory.mktemp("crash")) as folder:
        yield folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Tables of text whose edges are numbered in NUM_GROUPS groups."""
    folder = tmp_path / "source"
    folder.mkdir()
    rows = [f"n{n % 7},n{n % 5},{n},{n * n}" for n in range(NUM_EDGES)]
    (folder / "edges.csv.gz").write_bytes(gzip.compress("\n".join(["src,dst,w,t", *rows]).encode()))
    (folder / "nodes.csv").write_text("\n".join(["id,x,label", *(f"n{6 - n},{n},{n % 2}" for n in range(7))]))
    return folder


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The groups that were numbered, as they are."""
    names: list[str] = []
    write = table_tasks.NumberEdges.write

    def counted(task: Any, *arguments: Any) -> None:
        names.append(task.name)
        write(task, *arguments)

    monkeypatch.setattr(table_tasks.NumberEdges, "write", counted)
    return names


def import_tables(source: Path, graph: Path, injector: CrashInjector | None = None) -> None:
    import_graph(
        source,
        graph,
        engine=threads_engine() if injector is None else Engine("threads", 1, injector.native),
        budget=Budget(200 << 20),
        threads=1,
        injector=injector,
        options=OPTIONS,
        limits=LIMITS,
    )


@pytest.mark.fast(1)
@pytest.mark.parametrize("lost", ["names", "data"])
@EVERY
def test_after_any_crash_the_same_import_ends_the_same(
    tmp_path: Path, source: Path, lost: Lost, every: int, numbered: list[str]
) -> None:
    least = NUM_GROUPS
    for graph in Crashes(tmp_path, partial(import_tables, source)).each(every, lost):
        if not graph.exists():
            numbered.clear()
            import_tables(source, graph)
            least = min(least, len(numbered))
    assert least == 0


def test_a_table_that_changed_is_read_again(tmp_path: Path, source: Path, numbered: list[str]) -> None:
    edges = source / "edges.csv.gz"
    text = gzip.decompress(edges.read_bytes())
    edges.write_bytes(gzip.compress(text + b"\nn1,n9,1,1"))
    with pytest.raises(
        SourceError, match=r"edges\.csv\.gz, row 61: the destination must be an id of the nodes"
    ) as caught:
        import_tables(source, tmp_path / "graph")
    assert caught.value.__notes__ == [
        f"finished work is kept in {tmp_path / '.graph.work'}: it is reused after the correction"
    ]
    numbered.clear()
    edges.write_bytes(gzip.compress(text))
    import_tables(source, tmp_path / "graph")
    assert len(numbered) == NUM_GROUPS
    import_tables(source, tmp_path / "other")
    assert folder_bytes(tmp_path / "graph") == folder_bytes(tmp_path / "other")


def test_kill_9_leaves_the_groups_that_were_done(tmp_path: Path, numbered: list[str]) -> None:
    source = tmp_path / "source"
    source.mkdir()
    num_edges = 2_000_000
    (source / "nodes.csv").write_text("id\n" + "".join(f"n{n}\n" for n in range(1000)))
    (source / "edges.csv").write_text("src,dst\n" + "".join(f"n{n % 1000},n{n % 777}\n" for n in range(num_edges)))
    graph = tmp_path / "graph"
    command = ["import", str(source), str(graph), "--memory", "120MB", "--threads", "1"]
    child = subprocess.Popen([sys.executable, "-c", "from diskhop.cli import main; main()", *command])
    groups = tmp_path / ".graph.work" / "numbered"
    while child.poll() is None and not list(groups.glob("0*")):
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    num_done = len(list(groups.glob("0*")))
    assert num_done > 0
    import_graph(source, graph, engine=threads_engine(), budget=Budget(120 * 10**6), threads=1)
    in_group = int(numbered[0].split("-")[1])
    assert len(numbered) == -(-num_edges // in_group) - num_done
    import_graph(source, tmp_path / "other", engine=threads_engine())
    assert folder_bytes(graph) == folder_bytes(tmp_path / "other")
