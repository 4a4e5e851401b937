"""A second import to the same place, by the command line, while a first one works."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from diskhop.dataset.verify import verify
from tests.graphs import random_pairs

NUM_NODES, NUM_EDGES = 100_000, 4_000_000


# A budget with which edges are sorted by way of the disk, in a work folder.
OPTIONS = "--memory 48MB --undirected --duplicates drop --threads 2"


def start(source: Path, graph: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "diskhop", "import", str(source), str(graph), *OPTIONS.split()]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_second_import_to_the_same_place_is_refused(tmp_path: Path) -> None:
    source, graph = tmp_path / "source", tmp_path / "graph"
    source.mkdir()
    np.save(source / "edge_index.npy", random_pairs(NUM_NODES, NUM_EDGES).astype(np.int32))
    first = start(source, graph)
    while not (tmp_path / ".graph.work").exists() and first.poll() is None:
        time.sleep(0.001)
    first.send_signal(signal.SIGSTOP)
    try:
        second = start(source, graph)
        _, told = second.communicate()
    finally:
        first.send_signal(signal.SIGCONT)
    first.communicate()
    assert (first.returncode, second.returncode) == (0, 2)
    assert f"graph: process {first.pid} is writing to it" in told
    assert told.count("\n") == 1
    assert verify(graph) == []
    assert {path.name for path in tmp_path.iterdir()} == {"source", "graph"}
