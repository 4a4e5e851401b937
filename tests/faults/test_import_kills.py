"""Imports by the command line that are killed at any moment: the same command ends in the same bytes.

Crashes before each change are simulated elsewhere, on tiny data; here a process is gone from one instant to the next,
with threads at work, DuckDB among them.
"""

from __future__ import annotations

import gzip
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from diskhop.dataset.verify import verify
from tests.graphs import folder_bytes, memory_folder, random_pairs

KILLS_PER_SOURCE = 10
NUM_NODES = 100_000
# It says when it starts: what Python loads before is most of a short run.
COMMAND = [sys.executable, "-c", "from diskhop.cli import main; print('starts', flush=True); main()", "import"]


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with memory_folder(tmp_path_factory.mktemp("kills")) as folder:
        yield folder


def arrays(folder: Path) -> Path:
    np.save(folder / "edge_index.npy", random_pairs(NUM_NODES, 4_000_000).astype(np.int32))
    np.save(folder / "x.npy", np.random.default_rng(1).normal(size=(NUM_NODES, 100)).astype(np.float32))
    return folder


def text(folder: Path) -> Path:
    pairs = random_pairs(NUM_NODES, 1_200_000).T.tolist()
    path = folder / "edges.csv.gz"
    path.write_bytes(gzip.compress("".join(f"n{a},n{b}\n" for a, b in pairs).encode(), compresslevel=1))
    return path


def tables(folder: Path) -> Path:
    names = np.array([f"n{n}" for n in range(NUM_NODES)])
    sources, destinations = names[random_pairs(NUM_NODES, 3_000_000)]
    weights = np.arange(len(sources)) % 1000
    pq.write_table(pa.table({"src": sources, "dst": destinations, "w": weights}), folder / "edges.parquet")
    pq.write_table(pa.table({"id": names, "label": np.arange(NUM_NODES) % 3}), folder / "nodes.parquet")
    return folder


def triples(folder: Path) -> Path:
    pairs = random_pairs(NUM_NODES, 1_000_000).T.tolist()
    (folder / "train.txt").write_text("".join(f"n{a}\tr{(a + b) % 7}\tn{b}\n" for a, b in pairs))
    (folder / "test.txt").write_text("n1\tr1\tn2\n")
    return folder


# Budgets with which edges of arrays are sorted by way of the disk, and rows moved so.
SOURCES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "arrays": (arrays, "--memory 48MB --undirected --duplicates drop"),
    "hot": (arrays, "--memory 48MB --undirected --duplicates drop --order hot"),
    "text": (text, "--memory 160MB --undirected --ids string"),
    "tables": (tables, "--memory 160MB --weight w"),
    "triples": (triples, "--memory 160MB"),
}


class Imports:
    """Runs of one import by the command line."""

    def __init__(self, source: Path, options: str) -> None:
        self._arguments = [str(source), *options.split(), "--threads", "2"]

    def start(self, graph: Path) -> subprocess.Popen[str]:
        """A run that is past what Python loads."""
        child = subprocess.Popen(
            [*COMMAND, *self._arguments, str(graph)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "starts\n"
        return child

    def finish(self, graph: Path) -> float:
        """Seconds that a run takes that nobody stops."""
        child = self.start(graph)
        started = time.monotonic()
        _, told = child.communicate()
        assert child.returncode == 0, told
        return time.monotonic() - started

    def kill(self, graph: Path, after_seconds: float) -> None:
        """A run that is killed then, unless it was done."""
        child = self.start(graph)
        time.sleep(after_seconds)
        child.kill()
        _, told = child.communicate()
        assert child.returncode in (0, -signal.SIGKILL), told


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOURCES)
def test_random_kills_do_not_change_a_byte(tmp_path: Path, kind: str) -> None:
    make, options = SOURCES[kind]
    source, folder = tmp_path / "source", tmp_path / "killed"
    source.mkdir()
    imports = Imports(make(source), options)
    whole_seconds = imports.finish(tmp_path / "whole")
    expected = folder_bytes(tmp_path / "whole")
    generator = np.random.default_rng(0)
    num_kills = num_gone_on = 0
    while num_kills < KILLS_PER_SOURCE:
        folder.mkdir(exist_ok=True)
        graph, work = folder / "graph", folder / ".graph.work"
        imports.kill(graph, generator.uniform(0, whole_seconds))
        if not graph.exists():
            num_kills += 1
            num_gone_on += any(work.glob("[!.]*/[!.]*"))
            if num_kills < KILLS_PER_SOURCE and generator.random() < 0.5:
                continue  # and is killed again
            imports.finish(graph)
            assert not work.exists()
        assert folder_bytes(graph) == expected
        assert verify(graph) == []
        # The work folder goes after the dataset has come: a kill between them leaves both.
        assert {path.name for path in folder.iterdir()} - {work.name} == {graph.name}
        shutil.rmtree(folder)
    assert num_gone_on > 0


def test_a_second_import_to_the_same_place_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    imports = Imports(arrays(source), SOURCES["arrays"][1])
    graph = tmp_path / "graph"
    first = imports.start(graph)
    while not (tmp_path / ".graph.work").exists():
        time.sleep(0.001)
    first.send_signal(signal.SIGSTOP)
    try:
        second = imports.start(graph)
        _, told = second.communicate()
    finally:
        first.send_signal(signal.SIGCONT)
    first.communicate()
    assert (first.returncode, second.returncode) == (0, 2)
    assert f"graph: process {first.pid} is writing to it" in told
    assert told.count("\n") == 1
    assert verify(graph) == []
    assert {path.name for path in tmp_path.iterdir()} == {"source", "graph"}
