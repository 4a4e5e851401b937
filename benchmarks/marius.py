"""MariusGNN's way to sample next to neighbour sampling: preparation, and seconds and bytes of an epoch.

GNNDrive's Table 2 has both columns of MariusGNN: "data preparation" orders partitions and loads the first of them
before each epoch. Here partitions are ranges of the dataset's nodes, and nothing has to be written. Preparation is the
order of states and seeds, and the rows of as many partitions as are resident, read from front to back. The epoch is
that of training, from the store named, all files evicted before; a graph like workload W's, GraphSAGE of three hops.

    python benchmarks/marius.py --nodes 400000 --resident 4
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from diskhop._native import BufferPool, File
from diskhop.config.sampled import SampledConfig
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.generating import GraphConfig, generate_graph
from diskhop.io.engine import open_engine
from diskhop.io.streams import read_in_order
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.nodes.samplers import train_pass, train_sampler
from diskhop.runs.start import train
from diskhop.sampling.marius import nodes_per_partition, states_of
from turns import take_turn
from workloads import BATCH_SIZE, DEFAULT_FOLDER, HIDDEN, SEED, WORKLOADS, evict

W = WORKLOADS["W"]
NUM_PARTITIONS = 16


def find_small(folder: Path, num_nodes: int) -> Dataset:
    """Open a graph like W's with fewer nodes, or generate it."""
    path = folder / f"w-{num_nodes}"
    if not path.exists():
        config = GraphConfig(
            kind=W.kind,
            num_nodes=num_nodes,
            num_edges=15 * num_nodes,
            dim=128,
            num_classes=47,
            train_fraction=0.1,
            order=W.order,
            seed=1,
        )
        folder.mkdir(parents=True, exist_ok=True)
        generate_graph(path, config, engine=open_engine().engine)
    return open_dataset(path)


def options_of(sampler: str, store: str, memory_bytes: int, cache_bytes: int, resident: int) -> dict[str, Any]:
    options: dict[str, Any] = {
        "model": "sage",
        "sampler": sampler,
        "fanout": W.fanouts,
        "hidden": HIDDEN,
        "batch_size": BATCH_SIZE,
        "epochs": 1,
        "evaluate": False,
        "memory_bytes": memory_bytes,
        "cache_bytes": cache_bytes,
        "store": store,
        "seed": SEED,
    }
    if sampler == "marius":
        options |= {"node_partitions": NUM_PARTITIONS, "resident_partitions": resident}
    return options


def train_epoch(path: Path, options: dict[str, Any], stages: dict[str, float]) -> None:
    """Prepare and train one epoch in a process of its own."""
    dataset = open_dataset(path)
    evict(dataset)
    if options["sampler"] == "marius":
        stages["preparation"] = prepare(dataset, options)
        evict(dataset)
    result = train(dataset, **options, out=None).result
    (epoch,) = result["epochs"]
    for name in ("seconds", "sample_seconds", "fetch_seconds", "compute_seconds", "bytes_read", "bytes_needed"):
        stages[name] = epoch[name]


def prepare(dataset: Dataset, options: dict[str, Any]) -> float:
    """Return the seconds to order an epoch and to read the features of its first state."""
    config, _, task = resolve_config(dataset, options)
    assert isinstance(config, SampledConfig)
    table = dataset.feature_table()
    assert table is not None
    began = time.perf_counter()
    train_pass(config, task.seeds.train, dataset.num_nodes, 0)
    first = states_of(train_sampler(config), config.seed, 0)[0]
    share = len(first) * nodes_per_partition(dataset.num_nodes, NUM_PARTITIONS) / dataset.num_nodes
    num_bytes = int(min(1, share) * table.num_rows) * table.row_stride
    # As many bytes from the front of the table: partitions are read from front to back.
    for _ in read_in_order(File(str(table.path), "read"), num_bytes, open_engine().engine, BufferPool(0)):
        pass
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="where the graph is kept")
    parser.add_argument("--nodes", type=int, default=W.num_nodes, help="of the graph, with 15 edges each")
    parser.add_argument("--resident", type=int, default=4, help=f"partitions of {NUM_PARTITIONS}")
    parser.add_argument("--store", default="belady")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    arguments = parser.parse_args()
    out = sys.stderr if arguments.json else sys.stdout
    dataset = find_small(arguments.dir, arguments.nodes)
    table = dataset.feature_table()
    assert table is not None
    cache_bytes = table.num_rows * table.row_bytes * arguments.resident // NUM_PARTITIONS
    memory_bytes = cache_bytes + int(W.memory_bytes("direct", dataset) * max(1 / 2, arguments.nodes / W.num_nodes))
    print(f"{dataset.num_nodes:,} nodes; {arguments.resident} of {NUM_PARTITIONS} partitions resident", file=out)
    print(
        f"{'sampler':10}{'preparation s':>15}{'epoch s':>10}{'read GB':>10}{'needed GB':>11}{'overall s':>11}", file=out
    )
    found: dict[str, list[dict[str, float]]] = {"neighbor": [], "marius": []}
    for _ in range(arguments.turns):
        for sampler, turns in found.items():
            options = options_of(sampler, arguments.store, memory_bytes, cache_bytes, arguments.resident)
            stages = take_turn(train_epoch, dataset.path, options).stages
            turns.append(stages)
            before = stages.get("preparation", 0.0)
            read, needed = stages["bytes_read"] / 1e9, stages["bytes_needed"] / 1e9
            print(
                f"{sampler:10}{before:15.2f}{stages['seconds']:10.2f}{read:10.2f}{needed:11.2f}"
                f"{before + stages['seconds']:11.2f}",
                file=out,
                flush=True,
            )
    if arguments.json:
        print(json.dumps({"nodes": dataset.num_nodes, "resident": arguments.resident, "turns": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
