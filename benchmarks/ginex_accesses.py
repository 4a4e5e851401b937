"""Accesses of the Ginex paper's workload to rows, sampled with all lists in memory, for its figures without a disk."""

from __future__ import annotations

import numpy as np

from diskhop.budget import Budget
from diskhop.dataset.dataset import Dataset
from diskhop.io.engine import open_engine
from diskhop.protocols import NodeIds, Purpose, neighbor_spec
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.topology import open_topology, topology_bytes
from ginex_systems import FANOUTS, Case, shuffled
from workloads import SEED

_BLOCK_EDGES = 1 << 24


def record_accesses(dataset: Dataset, case: Case) -> list[NodeIds]:
    """Return the rows of each of the case's batches."""
    train_ids = dataset.split_rows("train")
    assert train_ids is not None
    seeds, size = shuffled(train_ids), case.batch_size
    budget = Budget(topology_bytes(dataset.topology, "memory"))
    with open_topology(dataset.topology, "memory", open_engine().engine, budget) as topology:
        sampler = open_sampler(topology, neighbor_spec(FANOUTS), SEED)
        parts = [seeds[start : start + size] for start in range(0, len(seeds), size)][: case.num_batches]
        return [
            sampler.sample(part, purpose=Purpose.TRAIN, epoch=0, number=number).node_ids.copy()
            for number, part in enumerate(parts)
        ]


def rank_by_out_degree(dataset: Dataset) -> NodeIds:
    """Return all nodes, those in the most lists of neighbours first, ties to the lower id (PaGraph)."""
    files = dataset.topology
    degrees = np.zeros(files.num_nodes, np.int64)
    listed = np.memmap(files.indices_path, files.index_dtype, "r", shape=(files.num_edges,))
    for start in range(0, files.num_edges, _BLOCK_EDGES):
        degrees += np.bincount(listed[start : start + _BLOCK_EDGES], minlength=files.num_nodes)
    return np.argsort(-degrees, kind="stable")
