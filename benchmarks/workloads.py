"""The workloads that claims about stores are made of: W (skewed), X (larger than memory, sparser), U (uniform).

Each dataset is generated once and kept in a folder, as w, x and u.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from diskhop._native import keyed_permutation
from diskhop.budget import parse_bytes
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.disk.model import DiskModel
from diskhop.disk.probe import probe
from diskhop.generating import GraphConfig, generate_graph
from diskhop.io.engine import open_engine
from diskhop.protocols import NodeRows, Purpose, neighbor_spec
from diskhop.sampling.seeds import SeedSet

DEFAULT_FOLDER = Path(__file__).parent / "data"
BATCH_SIZE, HIDDEN, SEED = 1000, 256, 0
# Not a store of the package: `mapped` without its advice.
PLAIN_MAP = "plain map"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedWorkload:
    """A graph of 128 float32 features, the model to train on it (HIDDEN wide), and the memory for both.

    cache: part of the memory for rows kept between batches: 10 % of the table.
    """

    kind: str
    num_nodes: int
    num_edges: int
    order: str
    fanouts: tuple[int, ...]
    num_batches: int
    memory: str
    cache: str

    def memory_bytes(self, store: str, dataset: Dataset) -> int:
        """Return the memory of the workload; for the store `memory` plus the table."""
        table = dataset.feature_table()
        assert table is not None
        return parse_bytes(self.memory) + (table.num_rows * table.row_bytes if store == "memory" else 0)

    @property
    def cache_bytes(self) -> int:
        return parse_bytes(self.cache)

    def seed_set(self, dataset: Dataset) -> SeedSet:
        """Return the training nodes, in the order of the first epoch."""
        train_ids = dataset.split_rows("train")
        assert train_ids is not None
        shuffled = NodeRows(train_ids[keyed_permutation(len(train_ids), SEED, int(Purpose.TRAIN), 0)])
        return SeedSet(
            purpose=Purpose.TRAIN,
            seeds=shuffled,
            batch_size=BATCH_SIZE,
            sampler=neighbor_spec(self.fanouts),
            is_shuffled=True,
        )


WORKLOADS = {
    "W": NamedWorkload(
        kind="kronecker",
        num_nodes=4_000_000,
        num_edges=60_000_000,
        order="hot",
        fanouts=(10, 10, 10),
        num_batches=40,
        memory="1200MB",
        cache="200MB",
    ),
    "X": NamedWorkload(
        kind="kronecker",
        num_nodes=16_000_000,
        num_edges=240_000_000,
        order="hot",
        fanouts=(10, 10, 10),
        num_batches=40,
        memory="3GB",
        cache="820MB",
    ),
    "U": NamedWorkload(
        kind="uniform",
        num_nodes=2_000_000,
        num_edges=30_000_000,
        order="input",
        fanouts=(10, 10),
        num_batches=60,
        memory="600MB",
        cache="102MB",
    ),
}


def find_dataset(name: str, folder: Path) -> Dataset:
    """Open the workload's dataset in the folder, or generate it there."""
    workload, path = WORKLOADS[name], folder / name.lower()
    if not path.exists():
        print(f"making {path}", file=sys.stderr, flush=True)
        config = GraphConfig(
            kind=workload.kind,
            num_nodes=workload.num_nodes,
            num_edges=workload.num_edges,
            dim=128,
            num_classes=47,
            train_fraction=0.1,
            order=workload.order,
            seed=1,
        )
        folder.mkdir(parents=True, exist_ok=True)
        generate_graph(path, config, engine=open_engine().engine)
    return require_workload(name, open_dataset(path))


def require_workload(name: str, dataset: Dataset) -> Dataset:
    """Refuse the dataset of another workload."""
    workload = WORKLOADS[name]
    if (dataset.num_nodes, dataset.topology.num_edges) != (workload.num_nodes, workload.num_edges):
        sys.exit(f"{dataset.path} is not workload {name}: {workload.num_nodes} nodes and {workload.num_edges} edges")
    return dataset


def measure_device(dataset: Dataset) -> DiskModel:
    """Measure the disk of the table now, because others may share it."""
    table = dataset.feature_table()
    assert table is not None
    return probe(dataset.path, existing_file=table.path, measure_again=True)


def evict(dataset: Dataset) -> None:
    """Evict all files of the dataset from the page cache, after writing them to the disk."""
    for name in dataset.manifest.files:
        descriptor = os.open(dataset.path / name, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
