"""Propagation that stopped anywhere is resumed by the same call, whatever its budget, and gives the same bytes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diskhop._native import CrashError, Engine, FaultInjector, FaultRule
from diskhop.dataset.dataset import Dataset
from diskhop.errors import DestinationError, DiskhopError
from diskhop.io.faults import CrashInjector, Lost
from tests.crashes import EVERY, crash_numbers
from tests.graphs import folder_bytes, make_dataset, memory_folder, skewed_pairs
from tests.propagation import build, propagate_small

# With the first budget a block is 4 of 9 columns; the lists of the second are sorted first; the last has cold edges.
CASES: dict[str, dict[str, Any]] = {
    "rows": {"num_nodes": 5000, "memory_bytes": 320_000, "operators": ("sign", "heat"), "hops": 2, "rows": "labelled"},
    "lists": {"num_nodes": 60, "memory_bytes": 3_000_000, "operators": ("sgc", "ppr"), "hops": 2, "direction": "both"},
    "all": {"num_nodes": 5000, "memory_bytes": 320_000, "operators": ("heat",), "hops": 2},
    "cold": {"num_nodes": 16_000, "memory_bytes": 520_000, "operators": ("heat",), "hops": 2},
}
KILLED = """
import sys
from pathlib import Path
from diskhop.dataset.dataset import open_dataset
from tests.propagation import propagate_small

dataset, options = open_dataset(sys.argv[1]), {"operators": ("sign", "heat"), "hops": 4}
propagate_small(dataset, Path(sys.argv[2]), memory_bytes=6_000_000, **options)
"""


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with memory_folder(tmp_path_factory.mktemp("propagation")) as folder:
        yield folder


@pytest.fixture(scope="module", params=list(CASES))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, dict[str, Any]]:
    options = dict(CASES[request.param])
    path = tmp_path_factory.mktemp("graphs") / "graph"
    num_nodes = options.pop("num_nodes")
    if request.param == "cold":
        features = np.random.default_rng(0).normal(size=(num_nodes, 9)).astype(np.float32)
        return build(path, skewed_pairs(num_nodes, 4 * num_nodes), features), options
    return make_dataset(path, num_nodes=num_nodes, num_edges=4 * num_nodes, dim=9), options


def propagate_at(root: Path, dataset: Dataset, options: dict[str, Any], nth: int) -> tuple[CrashInjector, Path | None]:
    root.mkdir()
    injector = CrashInjector(root, nth)
    engine = Engine("threads", 1, injector.native)
    try:
        done = propagate_small(dataset, root / "s", engine=engine, injector=injector, **options)
    except CrashError:
        return injector, None
    return injector, done.tables.path


def test_one_case_has_cold_edges(tmp_path: Path, case: tuple[Dataset, dict[str, Any]]) -> None:
    dataset, options = case
    plan = propagate_small(dataset, tmp_path / "s", **options).plan
    assert plan is not None
    assert (plan.cold is not None) == (dataset.num_nodes == CASES["cold"]["num_nodes"])


@pytest.mark.fast(4)
@EVERY
@pytest.mark.parametrize("lost", ["names", "data"])
def test_after_any_crash_propagation_ends_the_same(
    tmp_path: Path, case: tuple[Dataset, dict[str, Any]], every: int, lost: Lost
) -> None:
    dataset, options = case
    injector, path = propagate_at(tmp_path / "whole", dataset, options, 0)
    injector.__exit__(None, None, None)
    assert path is not None
    expected = folder_bytes(path)
    num_kept = 0
    crashes = crash_numbers(injector.num_changes, every, lost)
    for nth in crashes:
        injector, path = propagate_at(tmp_path / f"{nth}", dataset, options, nth)
        assert path is None
        after = tmp_path / f"after-{nth}"
        after.mkdir()
        with injector:
            injector.write_survivors(after, lost)
        work = list((after / "s").glob(".*.work/done/[!.]*")) if (after / "s").exists() else []
        num_kept += len(work) > 0
        # With more memory blocks are wider: those that are there are not made again.
        done = propagate_small(dataset, after / "s", **{**options, "memory_bytes": 100_000_000})
        assert folder_bytes(done.tables.path) == expected
        assert {entry.name for entry in (after / "s").iterdir()} - {f".{done.tables.path.name}.work"} == {
            done.tables.path.name
        }
        shutil.rmtree(tmp_path / f"{nth}")
        shutil.rmtree(after)
    assert num_kept > len(crashes) // 4


@pytest.mark.fast(4)
@pytest.mark.parametrize("kind", ["no_space", "io_error"])
def test_every_write_that_fails_is_told_and_gone_on_from(
    tmp_path: Path, case: tuple[Dataset, dict[str, Any]], kind: str
) -> None:
    dataset, options = case
    whole = propagate_small(dataset, tmp_path / "whole", **options).tables.path
    counting = FaultInjector([])
    propagate_small(dataset, tmp_path / "counted", engine=Engine("threads", 1, counting), **options)
    scratch = tmp_path / "s"
    num_writes = counting.count("writes")
    for nth in range(1, num_writes + 1, 1 + num_writes // 10):
        injector = FaultInjector([FaultRule(kind, "writes", nth)])
        expected = DestinationError if kind == "no_space" else DiskhopError
        with pytest.raises(expected, match=str(scratch)) as raised:
            propagate_small(dataset, scratch, engine=Engine("threads", 1, injector), **options)
        kept = [path.name for path in scratch.iterdir()]
        assert kept in ([], [f".{whole.name}.work"])
        if kept:
            assert any(f".{whole.name}.work" in note for note in raised.value.__notes__)
        again = propagate_small(dataset, scratch, **options).tables.path
        assert folder_bytes(again) == folder_bytes(whole)
        assert [path.name for path in scratch.iterdir()] == [whole.name]
        shutil.rmtree(scratch)


@pytest.mark.parametrize("rows", ["all", "labelled"])
def test_what_is_done_is_not_done_again(tmp_path: Path, rows: str) -> None:
    dataset = make_dataset(tmp_path / "graph", num_nodes=5000, num_edges=20_000, dim=9)
    options: dict[str, Any] = {"operators": ("sign", "ppr"), "hops": 2, "rows": rows}
    whole = propagate_small(dataset, tmp_path / "whole", **options)
    # The fifth step's first write fails: those before it are done.
    counting = FaultInjector([])
    propagate_small(dataset, tmp_path / "counted", engine=Engine("threads", 1, counting), **options)
    injector = FaultInjector([FaultRule("io_error", "writes", counting.count("writes") * 3 // 4)])
    with pytest.raises(DiskhopError):
        propagate_small(dataset, tmp_path / "s", engine=Engine("threads", 1, injector), **options)
    again = propagate_small(dataset, tmp_path / "s", **options)
    assert 0 < len(again.steps) < len(whole.steps)
    assert folder_bytes(again.tables.path) == folder_bytes(whole.tables.path)


def test_tables_that_no_hop_needs_are_not_kept(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "graph", num_nodes=5000, num_edges=20_000, dim=9)
    most = 0

    class Looks:
        def check(self, kind: str, path: str) -> None:
            nonlocal most
            most = max(most, len(list((tmp_path / "s").glob(".*.work/whole/*.bin"))))

    propagate_small(dataset, tmp_path / "s", operators=("sign", "row"), hops=5, rows="labelled", injector=Looks())
    assert most == 3  # the features, a hop and the next


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "graph")
    entered: list[BaseException] = []

    class Second:
        def check(self, kind: str, path: str) -> None:
            if not entered and "sign-hop-1" in path:
                try:
                    propagate_small(dataset, tmp_path / "s", hops=1)
                except DestinationError as error:
                    entered.append(error)

    propagate_small(dataset, tmp_path / "s", hops=1, injector=Second())
    assert f"process {os.getpid()} is writing to it" in str(entered[0])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda each: each.name)
def test_signals_at_random_moments_do_not_change_a_byte(tmp_path: Path, number: signal.Signals) -> None:
    dataset = make_dataset(tmp_path / "graph", num_nodes=100_000, num_edges=6_000_000, dim=32)
    options: dict[str, Any] = {"operators": ("sign", "heat"), "hops": 4}
    whole = propagate_small(dataset, tmp_path / "whole", **options).tables.path
    generator = np.random.default_rng(0)
    num_killed = 0
    for _ in range(20):
        command = [sys.executable, "-c", KILLED, str(dataset.path), str(tmp_path / "s")]
        process = subprocess.Popen(command, cwd=Path(__file__).parents[2], stderr=subprocess.DEVNULL)
        while process.poll() is None and not any((tmp_path / "s").glob(".propagated-*")):
            time.sleep(0.01)
        # Where it goes on, that is there before Python has started.
        time.sleep(generator.uniform(0.0, 1.0))
        process.send_signal(number)
        if process.wait() == 0:
            break
        num_killed += 1
    assert num_killed > 2
    again = propagate_small(dataset, tmp_path / "s", **options).tables.path
    assert folder_bytes(again) == folder_bytes(whole)
