"""Small graphs, datasets of them, and an engine, for any test that needs one."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop._native import Engine, FaultInjector
from diskhop.budget import Budget
from diskhop.dataset.build.builder import DatasetBuilder
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.edges import ArrayEdges
from diskhop.io.atomic import Injector

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@contextmanager
def memory_folder(otherwise: Path) -> Iterator[Path]:
    """A folder where an fsync costs nothing, for tests that fsync thousands of times; gone afterwards."""
    shared_memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared_memory if os.access(shared_memory, os.W_OK) else otherwise) as folder:
        yield Path(folder)


def threads_engine(injector: FaultInjector | None = None) -> Engine:
    """The engine that runs everywhere."""
    return Engine("threads", 4, injector)


def open_paths(folder: Path) -> list[str]:
    """Files below a folder of which this process has a descriptor, also those that are removed."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # it was that of the listing itself
            found.append(str(descriptor.readlink()))
    return [path for path in found if path.startswith(f"{folder}/")]


def random_pairs(num_nodes: int, num_edges: int, seed: int = 0) -> NDArray[np.int64]:
    """Edges (2, num_edges), repeats and loops among them."""
    return np.random.default_rng(seed).integers(0, num_nodes, (2, num_edges))


def skewed_pairs(num_nodes: int, num_edges: int, seed: int = 0) -> NDArray[np.int64]:
    """Edges (2, num_edges) from low nodes mostly, as in a hot order: one in a hundred is from any node."""
    generator = np.random.default_rng(seed)
    sources = (num_nodes * generator.random(num_edges) ** 4).astype(np.int64)
    sources[sources > num_nodes // 3] %= 64
    anywhere = generator.random(num_edges) < 0.01
    sources[anywhere] = generator.integers(0, num_nodes, anywhere.sum())
    return np.stack([sources, generator.integers(0, num_nodes, num_edges)])


class SlowEdges:
    """Edges of node 0 alone that take a while to read, and the most that were being read at once."""

    identity = "slow"

    def __init__(self, num_edges: int) -> None:
        self.num_edges = num_edges
        self.most_at_once = 0
        self._at_once = 0
        self._lock = Lock()

    def read(self, first: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        with self._lock:
            self._at_once += count
            self.most_at_once = max(self.most_at_once, self._at_once)
        time.sleep(0.01)
        with self._lock:
            self._at_once -= count
        ids = np.zeros(count, np.int64)
        return ids, ids


def make_dataset(
    destination: Path,
    *,
    num_nodes: int = 50,
    num_edges: int = 300,
    dim: int = 6,
    dtype: str = "float32",
    engine: Engine | None = None,
    injector: Injector | None = None,
) -> Dataset:
    """A plain dataset with features, labels and one split, the same for the same arguments."""
    generator = np.random.default_rng(1)
    with DatasetBuilder(
        destination,
        name="small",
        engine=engine or threads_engine(),
        budget=Budget(1 << 30),
        threads=1,
        injector=injector,
    ) as builder:
        builder.add_nodes("node", num_nodes)
        builder.add_edge_list("edge", "node", "node", ArrayEdges(random_pairs(num_nodes, num_edges)))
        features = generator.normal(size=(num_nodes, dim)).astype(np.float32)
        builder.add_features("node", [features], dim=dim, dtype=dtype)
        builder.add_labels("node", [np.arange(num_nodes) % 3])
        order = generator.permutation(num_nodes)
        for part, ids in zip(("train", "valid", "test"), np.array_split(order, 3), strict=True):
            builder.add_split("node", part, [ids])
        return builder.finish()


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def edges_of(dataset: Dataset) -> list[tuple[int, int]]:
    """(source, destination) of each edge, in the order of the lists."""
    indptr = np.fromfile(dataset.topology.indptr_path, np.int64)
    indices = np.fromfile(dataset.topology.indices_path, np.uint32)
    return [(int(source), v) for v in range(dataset.num_nodes) for source in indices[indptr[v] : indptr[v + 1]]]
