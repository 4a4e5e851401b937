"""Loaders in a forked process: one line in the child, a parent that goes on, and nothing that waits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs import small_graph

# In a process of its own, since a fork of pytest's would take along its threads.
PROGRAM = """
import gc, os, sys, warnings
warnings.simplefilter("ignore")
import torch
import diskhop

kind, folder = sys.argv[1:]
dataset = diskhop.open_dataset(folder)
diskhop.NeighborLoader  # imports
# A child that ends would look at all that was imported, and copy its pages.
gc.freeze()

def make():
    if kind in ("disk", "memory"):
        tables = diskhop.propagate(dataset, diskhop.PropagationSpec(hops=1), memory="64MB").tables
        return diskhop.HopLoader(tables, batch_size=4, place=kind, memory="64MB")
    return diskhop.NeighborLoader(dataset, [2, 2], batch_size=4, memory="64MB", store=kind)

def refused(action):
    try:
        action()
    except diskhop.DiskhopError as error:
        return "make a" in str(error) and "num_workers=0" in str(error)
    return False

def ask():
    assert refused(lambda: next(batches)) and refused(lambda: next(iter(loader)))

def free():
    global loader, batches
    del loader, batches
    gc.collect()

def make_another():
    with make() as mine:
        assert len(list(mine)) == 10

class Batches(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(loader)

for action in (ask, lambda: loader.close(), free, lambda: None, make_another):
    with make() as loader:
        batches = iter(loader)
        next(batches)
        child = os.fork()
        if child == 0:
            action()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert (len(list(batches)), len(list(loader))) == (9, 10)
loader = make()
workers = torch.utils.data.DataLoader(Batches(), batch_size=None, num_workers=1, multiprocessing_context="fork")
assert refused(lambda: list(workers))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["belady", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("disk", "memory"))]
)
def test_a_fork_neither_hangs_nor_disturbs_the_parent(tmp_path: Path, kind: str) -> None:
    small_graph(tmp_path / "graph", num_nodes=40, num_edges=400)
    arguments = [sys.executable, "-c", PROGRAM, kind, str(tmp_path / "graph")]
    done = subprocess.run(arguments, timeout=120, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
