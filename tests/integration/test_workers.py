"""Work spread over processes: the same bytes at any count, the same lines, and no process left behind."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from diskhop.budget import Budget
from diskhop.cli import run
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.sort.plan import SortLimits
from diskhop.errors import BudgetError, SourceError, WorkerError
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.importing.tools import ImportLimits
from diskhop.runtime.tasks import TaskTools, WorkFolder, run_tasks
from diskhop.runtime.workers import PipeLane, Workers
from tests.graphs import folder_bytes, memory_folder, random_pairs, threads_engine
from tests.working import Sleeps

THREE = pytest.param(3, marks=pytest.mark.slow)
# Where a test itself was started by a shell in the background, SIGINT is ignored.
COMMAND = """
import signal
from diskhop.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with memory_folder(tmp_path_factory.mktemp("workers")) as folder:
        yield folder


# Several tasks in every stage of tiny graphs.
TINY = ImportLimits(
    pairs_slice_bytes=1 << 11,
    rows_slice_bytes=1 << 11,
    rows_group_share=1 << 17,
    range_bytes=1 << 20,
    edges_per_group=1 << 7,
    most_edges_per_group=1 << 9,
    triples_slice_bytes=1 << 10,
    triples_group_share=1 << 17,
    copied_array_bytes=1 << 14,
    sort=SortLimits(in_memory_bytes=0, spill_bytes=1 << 12, bucket_keys=1 << 8, least_block_bytes=4096),
)


@pytest.fixture
def spread(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Number of lanes of workers by kind of task, where workers were requested; 0: the tasks stayed in this process."""
    found: dict[str, int] = {}
    whole = Workers.open

    @contextmanager
    def recorded(self: Workers, job: Any, folder: Path, threads: int) -> Iterator[list[PipeLane]]:
        with whole(self, job, folder, threads) as lanes:
            found[type(job._tasks[0]).__name__.lstrip("_")] = len(lanes)
            yield lanes

    monkeypatch.setattr(Workers, "open", recorded)
    return found


def write_arrays(source: Path) -> None:
    source.mkdir()
    np.save(source / "edge_index.npy", random_pairs(300, 4000))
    np.save(source / "x.npy", np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32))


def write_features(source: Path) -> None:
    """Three ranges of them."""
    write_arrays(source)
    np.save(source / "x.npy", np.random.default_rng(0).normal(size=(300, 2048)).astype(np.float32))


def write_archive(source: Path) -> None:
    source.mkdir()
    np.savez_compressed(source / "data.npz", edge_index=random_pairs(300, 4000), num_nodes=300)


def write_integers(source: Path) -> None:
    """Write parts, plain and compressed, with ids other than 0 to N - 1."""
    source.mkdir()
    for part in range(3):
        lines = "".join(f"{3 * a},{3 * b}\n" for a, b in random_pairs(300, 1500, part).T.tolist()).encode()
        packed = part > 0
        (source / f"{part}.csv{'.gz' if packed else ''}").write_bytes(gzip.compress(lines) if packed else lines)


def write_names(source: Path) -> None:
    source.write_text("".join(f"n{a},n{b}\n" for a, b in random_pairs(300, 2000).T.tolist()))


def write_tables(source: Path) -> None:
    (source / "edges").mkdir(parents=True)
    for part in range(2):
        rows = [f"n{a},n{b},{(a + b) / 7}" for a, b in random_pairs(200, 600, part).T.tolist()]
        text = "\n".join(["src,dst,weight", *rows, ""]).encode()
        (source / "edges" / f"{part}.csv.gz").write_bytes(gzip.compress(text))
    nodes = [f"n{node},{node % 3},{node / 3}" for node in np.random.default_rng(0).permutation(200)]
    (source / "nodes.csv").write_text("\n".join(["id,label,value", *nodes, ""]))


def write_number_tables(source: Path) -> None:
    source.mkdir()
    (source / "edges").mkdir()
    for part in range(2):
        rows = [f"{3 * a},{3 * b}" for a, b in random_pairs(200, 600, part).T.tolist()]
        (source / "edges" / f"{part}.csv").write_text("\n".join(["src,dst", *rows, ""]))


def write_triples(source: Path) -> None:
    source.mkdir()
    for number, part in enumerate(("train", "valid", "test")):
        rows = random_pairs(80, 300, number).T.tolist()
        (source / f"{part}.txt").write_text("".join(f"e{a}\tr{(a + b) % 5}\te{b}\n" for a, b in rows))


def write_numbered_triples(source: Path) -> None:
    source.mkdir()
    (source / "entities.dict").write_text("".join(f"{number}\te{number}\n" for number in range(200)))
    (source / "relations.dict").write_text("".join(f"{number}\tr{number}\n" for number in range(5)))
    for number, part in enumerate(("train", "valid", "test")):
        rows = random_pairs(80, 300, number).T.tolist()
        (source / f"{part}.del").write_text("".join(f"{a}\t{(a + b) % 5}\t{b}\n" for a, b in rows))


@dataclass(frozen=True, slots=True)
class Case:
    """spread: kinds of tasks that run in workers; stays: those that cannot."""

    write: Callable[[Path], None]
    options: ImportOptions
    spread: tuple[str, ...]
    stays: tuple[str, ...] = ()


CASES = {
    "arrays": Case(write_arrays, ImportOptions(), ("SpillTask",)),
    "hot": Case(write_arrays, ImportOptions(order="hot", undirected=True), ("SpillTask",)),
    "features": Case(write_features, ImportOptions(), ("SpillTask", "RangeTask")),
    "archive": Case(write_archive, ImportOptions(), (), ("SpillTask",)),
    "integers": Case(write_integers, ImportOptions(duplicates="drop"), ("Unpack", "ParsePairs", "SpillTask")),
    "names": Case(write_names, ImportOptions(), ("ParseRows", "NumberRows", "SpillTask")),
    "tables": Case(
        write_tables,
        ImportOptions(label=("label",), weight="weight"),
        ("Unpack", "KeepText", "NumberEdges", "SpillTask"),
    ),
    "number-tables": Case(write_number_tables, ImportOptions(), ("KeepText", "NumberEdges", "SpillTask")),
    "triples": Case(write_triples, ImportOptions(), ("ParseTexts", "NumberNames")),
    "numbered-triples": Case(write_numbered_triples, ImportOptions(), ("ParseTexts", "ParseIds")),
}


def imported(
    source: Path,
    graph: Path,
    workers: int,
    options: ImportOptions | None = None,
    *,
    threads: int = 4,
    memory_bytes: int = 1 << 30,
    limits: ImportLimits = TINY,
) -> Dataset:
    return import_graph(
        source,
        graph,
        options=options,
        engine=threads_engine(),
        budget=Budget(memory_bytes),
        threads=threads,
        workers=workers,
        limits=limits,
    )


def source_of(case: Case, folder: Path) -> Path:
    source = folder / ("edges.csv" if case.write is write_names else "source")
    case.write(source)
    return source


@pytest.mark.fast("integers-2", "names-2")
@pytest.mark.parametrize("workers", [2, THREE])
@pytest.mark.parametrize("name", CASES)
def test_any_number_of_workers_makes_the_same_bytes(
    tmp_path: Path, name: str, workers: int, spread: dict[str, int]
) -> None:
    case = CASES[name]
    source = source_of(case, tmp_path)
    imported(source, tmp_path / "one", 1, case.options)
    assert not spread
    imported(source, tmp_path / "several", workers, case.options)
    assert folder_bytes(tmp_path / "several") == folder_bytes(tmp_path / "one")
    assert set(case.spread) <= {kind for kind, lanes in spread.items() if lanes > 1}, spread
    assert set(case.stays) <= {kind for kind, lanes in spread.items() if lanes == 0}, spread
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["one", "several", source.name])


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait until a condition holds, and return its value."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
    return found


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def num_children() -> int:
    return len(psutil.Process().children())


def worked(tasks: list[Sleeps], folder: Path, *, workers: int = 2, threads: int = 2, **options: Any) -> list[int]:
    """The processes that did the tasks."""
    folder.mkdir(exist_ok=True)
    engine = threads_engine()
    with Workers(workers, threads, engine) as crew:
        run_tasks(tasks, folder, TaskTools(engine, executor=crew), threads=threads, **options)
    return [int((folder / task.name).read_text()) for task in tasks]


def test_tasks_are_done_by_as_many_processes_and_threads_as_are_asked_for(tmp_path: Path) -> None:
    tasks = [Sleeps(f"{number}", 0.5) for number in range(6)]
    counted: list[int] = []
    told: list[tuple[int, int]] = []
    begin = time.monotonic()
    pids = worked(
        tasks, tmp_path / "a", threads=6, count=counted.append, progress=lambda *numbers: told.append(numbers)
    )
    assert len(set(pids)) == 2
    assert os.getpid() not in pids
    assert time.monotonic() - begin < 3, "one after the other"
    assert counted == [1] * 6
    assert told[0] == (0, 6)
    assert told[-1] == (6, 6)
    assert num_children() == 0


def test_a_single_task_and_a_single_worker_stay_in_this_process(tmp_path: Path) -> None:
    assert worked([Sleeps("0")], tmp_path / "a") == [os.getpid()]
    assert worked([Sleeps("0"), Sleeps("1")], tmp_path / "b", workers=1) == 2 * [os.getpid()]


def test_an_error_arrives_as_it_was_raised_and_stops_the_rest(tmp_path: Path) -> None:
    tasks = [Sleeps("0", fails=True), *(Sleeps(f"{number}", 0.05) for number in range(1, 40))]
    with pytest.raises(BudgetError, match="too small") as caught:
        worked(tasks, tmp_path / "a")
    assert caught.value.smallest_bytes == 7
    assert caught.value.__notes__ == ["a note"]
    assert "working.py" in str(caught.value.__cause__)
    done = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert "0" not in done
    assert len(done) < 20
    assert num_children() == 0


def test_a_worker_that_dies_is_one_line_and_what_is_done_stays(tmp_path: Path) -> None:
    tasks = [Sleeps("0"), Sleeps("1", 0.2, dies=True), Sleeps("2")]
    with pytest.raises(WorkerError, match=r"worker process \d+ was ended by SIGKILL before .*; use fewer --workers"):
        worked(tasks, tmp_path / "a")
    assert (tmp_path / "a" / "0").exists()
    assert not (tmp_path / "a" / "1").exists()
    assert num_children() == 0


@pytest.mark.fast("tables")
@pytest.mark.parametrize("name", ["integers", "tables"])
def test_an_import_whose_worker_was_killed_goes_on(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    case = CASES[name]
    source = source_of(case, tmp_path)
    imported(source, tmp_path / "whole", 1, case.options)
    graph = tmp_path / "graph"
    with monkeypatch.context() as killing:
        whole = PipeLane.send
        asked: list[int] = []

        def send(self: PipeLane, what: str, about: Any) -> None:
            whole(self, what, about)
            asked.extend([about] if what == "run" else [])
            if len(asked) == 9:
                self._process.kill()

        killing.setattr(PipeLane, "send", send)
        killing.setattr("diskhop.importing.run.import_graph", partial(import_graph, limits=TINY))
        options = ["--label", "label", "--weight", "weight"] if name == "tables" else ["--duplicates", "drop"]
        arguments = ["import", str(source), str(graph), "--memory", "1GB", "--threads", "2", "--workers", "2", *options]
        assert run(arguments) == 1
    lines = capfd.readouterr().err.splitlines()
    *_decisions_and_estimate, line = lines
    assert line.startswith("diskhop: worker process ")
    assert "SIGKILL" in line
    assert line.endswith(f"finished work is kept in {tmp_path}/.graph.work: run the same command again to resume")
    assert not graph.exists()
    assert num_children() == 0
    imported(source, graph, 2, case.options, threads=2, memory_bytes=10**9)
    assert folder_bytes(graph) == folder_bytes(tmp_path / "whole")
    assert not (tmp_path / ".graph.work").exists()


@pytest.mark.fast("tables")
@pytest.mark.parametrize("name", ["integers", "tables", "arrays"])
def test_errors_are_the_same_lines(tmp_path: Path, name: str) -> None:
    source = source_of(CASES[name], tmp_path)
    if name == "arrays":
        pairs = random_pairs(300, 4000)
        pairs[0, 3000] = 300
        np.save(source / "edge_index.npy", pairs)
    elif name == "integers":
        (source / "0.csv").write_text((source / "0.csv").read_text() + "7,x\n")
    else:
        (source / "edges" / "1.csv.gz").write_bytes(gzip.compress(b"src,dst,weight\nn1,nobody,1\n"))
    lines = []
    for workers in (1, 2):
        with pytest.raises(SourceError) as caught:
            imported(source, tmp_path / "graph", workers, CASES[name].options)
        lines.append([str(caught.value), *caught.value.__notes__])
    assert lines[0] == lines[1]
    assert num_children() == 0


@pytest.mark.fast("hot")
@pytest.mark.parametrize(
    ("name", "limits", "kind"),
    [
        ("names", replace(TINY, rows_group_share=1 << 14), "ParseRows"),
        ("integers", replace(TINY, id_copies_share=1 << 40), "SpillTask"),
        ("hot", replace(TINY, order_share=1 << 40), "SpillTask"),
    ],
    ids=["names", "integers", "hot"],
)
def test_what_has_too_little_memory_to_be_divided_stays(
    tmp_path: Path, name: str, limits: ImportLimits, kind: str, spread: dict[str, int]
) -> None:
    source = source_of(CASES[name], tmp_path)
    for graph, workers in (("one", 1), ("two", 2)):
        imported(source, tmp_path / graph, workers, CASES[name].options, memory_bytes=100 << 20, limits=limits)
    assert spread[kind] == 0
    assert folder_bytes(tmp_path / "two") == folder_bytes(tmp_path / "one")


def test_what_queries_of_a_killed_run_spilled_is_gone(tmp_path: Path) -> None:
    spilled = tmp_path / ".graph.work" / ".spill-1234"
    spilled.mkdir(parents=True)
    (spilled / "data").write_text("much")
    with WorkFolder(tmp_path / "graph") as work:
        work.stage("pairs", "key")
        assert not spilled.exists()


@pytest.mark.fast("9")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_driver_that_ends_takes_its_workers_along(tmp_path: Path, number: int) -> None:
    """Workers end at once, however long their tasks would take."""
    driver = subprocess.Popen(
        [sys.executable, "-c", "from tests.working import sleep; sleep()", tmp_path],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.DEVNULL,
    )

    def pids() -> list[int]:
        found = [path.read_text() for path in tmp_path.glob(".*.partial")]
        return [int(each) for each in found] if len(found) == 2 and all(found) else []

    workers = wait_for(pids)
    assert all(map(is_alive, workers))
    driver.send_signal(number)
    driver.wait(5)
    wait_for(lambda: not any(map(is_alive, workers)), 2)


@pytest.mark.fast("2")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_process_group_is_one_line_and_leaves_no_process(tmp_path: Path, number: int) -> None:
    source = tmp_path / "edges.csv"
    source.write_text("".join(f"{n % 1000},{n % 777}\n" for n in range(2_000_000)))
    options = ["--memory", "200MB", "--threads", "2", "--workers", "2"]
    driver = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "import", str(source), str(tmp_path / "graph"), *options],
        stderr=subprocess.PIPE,
        process_group=0,
        text=True,
    )
    wait_for(lambda: list((tmp_path / ".graph.work" / "pairs").glob("0*")))
    workers = [process.pid for process in psutil.Process(driver.pid).children()]
    assert len(workers) == 2
    os.killpg(driver.pid, number)
    _, told = driver.communicate(timeout=20)
    assert driver.returncode == 128 + number
    assert "Traceback" not in told
    if number == signal.SIGINT:
        (line,) = [line for line in told.splitlines() if "interrupted" in line]
        assert line.endswith("run the same command again to resume")
    assert not any(map(is_alive, workers))
    assert (tmp_path / ".graph.work").exists()
    assert not (tmp_path / "graph").exists()


@pytest.mark.slow
def test_an_import_that_was_killed_goes_on_with_another_number_of_workers(tmp_path: Path) -> None:
    source = tmp_path / "edges.csv"
    source.write_text("".join(f"{n % 1000},{n % 777}\n" for n in range(2_000_000)))

    def start(graph: str, workers: int) -> subprocess.Popen[bytes]:
        options = ["--name", "graph", "--memory", "250MB", "--threads", "2", f"--workers={workers}"]
        return subprocess.Popen([sys.executable, "-c", COMMAND, "import", source, tmp_path / graph, *options])

    def num_parsed() -> int:
        return len(list((tmp_path / ".graph.work" / "pairs").glob("0*")))

    for workers in (2, 3):
        driver = start("graph", workers)
        before = num_parsed()
        wait_for(lambda before=before: num_parsed() > before)  # type: ignore[misc]
        driver.kill()
        driver.wait()
    assert start("graph", 2).wait() == 0
    assert start("whole", 1).wait() == 0
    assert folder_bytes(tmp_path / "graph") == folder_bytes(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.csv", "graph", "whole"]


@pytest.mark.parametrize("workers", [0, -1, 65])
def test_a_count_that_cannot_be_is_one_line(tmp_path: Path, workers: int, capsys: pytest.CaptureFixture[str]) -> None:
    write_arrays(tmp_path / "source")
    assert run(["import", str(tmp_path / "source"), str(tmp_path / "graph"), f"--workers={workers}"]) == 2
    assert capsys.readouterr().err == (f"diskhop: --workers {workers} must be from 1 to 64; 1 works in this process\n")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_worker_needs_no_torch() -> None:
    code = "import diskhop.runtime.workers, diskhop.importing.run, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
