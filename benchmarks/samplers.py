"""Every sampler: edges per second, distinct nodes per batch, and the bytes that each store reads for it per epoch.

Claims (issue 39), on workload W's graph (kronecker, hot order, 4 M nodes, 60 M edges, 128 float32 features; batches of
1000 of a tenth of the nodes, three hops; 1200 MB of memory, of it a cache of 10 % of the table): LABOR has at most .75
of the distinct nodes of neighbour sampling, and with dependent batches the store belady reads at most .6 of its bytes.

LABOR and MariusGNN have the fan-outs of neighbour sampling. LADIES and FastGCN draw a number of nodes per hop; batches
of GraphSAINT and Cluster-GCN are subgraphs, and their epochs have every node. Edges per second: one thread, lists in
memory, turns of the samplers one after another, several times. GB: a pass without a model over the first batches of an
epoch, in its own process, all files evicted before; bytes as the store counts them, with neighbour lists, packing and
the gaps between merged reads, or what the kernel read for a store that does not read itself; scaled to the batches of
an epoch. Slow stores read three batches, so that `mapped`, whose page cache is cold at first, would read less in a
whole epoch; `memory` reads the table once, before that. rows, lists: of it those of rows and of neighbour lists. Ratios
are to neighbour sampling in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from diskhop._native import BufferPool
from diskhop.budget import Budget
from diskhop.config.sampler import CLUSTER, LABOR
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.disk.model import DiskModel
from diskhop.disk.probe import probe
from diskhop.io.engine import open_engine
from diskhop.pipeline.batch import Pass
from diskhop.pipeline.pipeline import open_pipeline
from diskhop.planning.planner import choose_plan
from diskhop.planning.workload import Workload
from diskhop.protocols import NEIGHBOR, Purpose, Sampler
from diskhop.sampling.samplers import open_sampler
from diskhop.sampling.topology import open_topology
from diskhop.stores.stores import STORES
from diskhop.system.transfers import transfers
from propagate import Size, find_graph
from sampler_rows import DEPENDENT_LABOR, epoch_of, rows_of, with_clusters
from turns import peak_rss_bytes, take_turn
from workloads import DEFAULT_FOLDER, SEED, WORKLOADS, evict

W = WORKLOADS["W"]
MOST_NODES, MOST_BYTES = 0.75, 0.6
CLAIMED_STORE = "belady"
# A quarter of an hour or more per epoch: a few batches of it are read.
SLOW, SLOW_BATCHES = ("mapped", "pread"), 3
POOL_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Means per batch of one sampler. edges_per_second: of each turn."""

    num_nodes: float
    num_edges: float
    edges_per_second: list[float]
    workspace_bytes: int


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One store's pass. bytes_read: per epoch; topology_bytes: those of neighbour lists; row_bytes: of rows read."""

    bytes_read: float
    row_bytes: float
    topology_bytes: float
    peak_rss_bytes: int
    seconds_per_batch: float


def measure_sampling(dataset: Dataset, names: list[str], num_batches: int, turns: int) -> dict[str, Sampling]:
    """Sample the first batches of an epoch with each sampler in turn."""
    rows = rows_of(dataset.num_nodes)
    epochs, pool = {name: epoch_of(dataset, rows[name]) for name in names}, BufferPool(POOL_BYTES)
    num_sampled = {name: min(num_batches, epoch.num_batches) for name, epoch in epochs.items()}
    budget = Budget(1 << 40)
    counts: dict[str, tuple[int, int]] = {}
    rates: dict[str, list[float]] = {}
    with_lists = with_clusters(dataset) if CLUSTER in names else dataset
    with open_topology(with_lists.topology, "memory", open_engine().engine, budget) as topology:
        opened = {name: open_sampler(topology, rows[name].spec, SEED, pool) for name in names}
        for _ in range(turns):
            for name, sampler in opened.items():
                began = time.perf_counter()
                counts[name] = sample_batches(sampler, epochs[name].pass_of(range(num_sampled[name])))
                rates.setdefault(name, []).append(counts[name][1] / (time.perf_counter() - began))
        return {
            name: Sampling(
                num_nodes=counts[name][0] / num_sampled[name],
                num_edges=counts[name][1] / num_sampled[name],
                edges_per_second=rates[name],
                workspace_bytes=sampler.workspace_bytes,
            )
            for name, sampler in opened.items()
        }


def sample_batches(sampler: Sampler, wanted: Pass) -> tuple[int, int]:
    """Return the numbers of nodes and edges of some batches."""
    num_nodes = num_edges = 0
    for number in wanted.numbers:
        seeds = wanted.seeds_of(number)
        batch = sampler.sample(seeds.rows, purpose=Purpose.TRAIN, epoch=0, number=number, times=seeds.times)
        num_nodes, num_edges = num_nodes + batch.num_nodes, num_edges + len(batch.sources)
        del batch  # Its memory is that of the next.
    return num_nodes, num_edges


def read_batches(
    path: Path, name: str, store: str, num_batches: int, scratch: str, disk: dict[str, Any], stages: dict[str, float]
) -> None:
    """Fetch the first batches of an epoch through a store; records what it read in stages. disk: a DiskModel."""
    dataset = open_dataset(path)
    dataset = with_clusters(dataset) if name == CLUSTER else dataset
    epoch = epoch_of(dataset, rows_of(dataset.num_nodes)[name])
    num_batches = min(num_batches, epoch.num_batches)
    table = dataset.feature_table()
    assert table is not None
    table_bytes, share = table.num_rows * table.row_bytes, dataset.num_nodes / W.num_nodes
    seed_set = epoch.seed_set()
    wanted = Workload(
        seed_sets=(seed_set,),
        seed=SEED,
        store=store,
        cache_bytes=table_bytes // 10 if "cache" in STORES[store].uses else None,
        scratch=scratch if "scratch" in STORES[store].uses else None,
        reads_lent_rows=True,
    )
    # A batch does not shrink with the graph as much as its table does.
    memory_bytes = int(W.memory_bytes("direct", dataset) * max(share, 1 / 2))
    budget = Budget(memory_bytes + (table_bytes if store == "memory" else 0))
    plan = choose_plan(dataset, wanted, budget, DiskModel.from_dict(disk))
    evict(dataset)
    counted = topology_bytes = rows_read = 0
    with open_pipeline(dataset, plan, budget, expected=seed_set) as pipeline:
        kernel = transfers().bytes_read
        began = time.perf_counter()
        with pipeline.run(epoch.pass_of(range(num_batches))) as batches:
            for batch in batches:
                counts = batch.counts
                counted += counts.bytes_read + counts.packing_bytes_read
                rows_read += counts.rows_requested - counts.rows_hit - counts.rows_shared + counts.rows_filled
                topology_bytes += batch.sampled.topology_bytes_read
                del batch  # As in training: a batch kept is one more than reserved.
        stages["seconds"] = time.perf_counter() - began
        stages["bytes"] = counted + topology_bytes if counted else transfers().bytes_read - kernel
    stages["epochs"] = epoch.num_batches / num_batches
    stages["batches"] = num_batches
    stages["topology"] = topology_bytes
    stages["rows"] = rows_read * table.row_bytes
    stages["rss"] = peak_rss_bytes()


def measure_reading(
    dataset: Dataset, name: str, store: str, num_batches: int, scratch: Path, disk: DiskModel
) -> Reading:
    """Run a pass in its own process. All passes merge reads by the same disk model, which others' load would change."""
    with tempfile.TemporaryDirectory(dir=scratch, prefix="samplers-") as folder:
        stages = take_turn(read_batches, dataset.path, name, store, num_batches, folder, disk.to_dict()).stages
    epochs = stages["epochs"]
    return Reading(
        bytes_read=stages["bytes"] * epochs,
        topology_bytes=stages["topology"] * epochs,
        row_bytes=stages["rows"] * epochs,
        peak_rss_bytes=int(stages["rss"]),
        seconds_per_batch=stages["seconds"] / stages["batches"],
    )


def print_sampling(rows: dict[str, Sampling], out: Any) -> None:
    base = rows[NEIGHBOR]
    out(f"{'sampler':22}{'nodes':>11}{'/ neighbor':>12}{'edges':>11}{'M edges/s (min..max)':>24}{'workspace MB':>14}")
    for name, row in rows.items():
        rates = [rate / 1e6 for rate in row.edges_per_second]
        spread = f"{statistics.median(rates):.2f} ({min(rates):.2f}..{max(rates):.2f})"
        ratio = f"{row.num_nodes / base.num_nodes:.2f}"
        out(
            f"{name:22}{row.num_nodes:11,.0f}{ratio:>12}{row.num_edges:11,.0f}{spread:>24}"
            f"{row.workspace_bytes / 1e6:14.1f}"
        )


def print_reading(store: str, by_name: dict[str, list[Reading]], out: Any) -> None:
    """by_name: turns of each sampler."""
    heads = f"{'GB/epoch (min..max)':>24}{'/ neighbor':>12}{'rows GB':>9}{'lists GB':>10}{'s/batch':>9}{'peak MB':>9}"
    out(f"\n{store:22}{heads}")
    base = statistics.median(each.bytes_read for each in by_name[NEIGHBOR])
    for name, turns in by_name.items():
        read = [each.bytes_read / 1e9 for each in turns]
        spread = f"{statistics.median(read):.2f} ({min(read):.2f}..{max(read):.2f})"
        ratio = f"{statistics.median(read) * 1e9 / base:.2f}" if base else "-"
        seconds = statistics.median(each.seconds_per_batch for each in turns)
        peak = max(each.peak_rss_bytes for each in turns) / 1e6
        rows = statistics.median(each.row_bytes for each in turns) / 1e9
        lists = statistics.median(each.topology_bytes for each in turns) / 1e9
        out(f"{name:22}{spread:>24}{ratio:>12}{rows:9.2f}{lists:10.2f}{seconds:9.3f}{peak:9,.0f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="where the graph is kept")
    parser.add_argument("--nodes", type=int, default=W.num_nodes, help="of the graph, with 15 edges each")
    parser.add_argument("--batches", type=int, default=W.num_batches, help="of each pass")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--samplers", default="", help="names of lines, separated by ';'; default: all")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the tables on stderr")
    arguments = parser.parse_args()

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    dataset = find_graph(arguments.dir, Size(arguments.nodes, 15 * arguments.nodes, 128, 1, 0))
    num_batches, rows = arguments.batches, rows_of(dataset.num_nodes)
    out(f"{dataset.num_nodes:,} nodes, {dataset.num_edges:,} edges; {num_batches} batches; {os.cpu_count()} cores\n")
    wanted = [name for name in arguments.samplers.split(";") if name] or list(rows)
    names = list(dict.fromkeys((NEIGHBOR, LABOR, *wanted)))
    sampled = measure_sampling(dataset, names, num_batches, arguments.turns)
    print_sampling(sampled, out)
    disk = probe(dataset.path)
    reading: dict[str, dict[str, list[Reading]]] = {}
    for store in filter(None, arguments.stores.split(",")):
        by_name: dict[str, list[Reading]] = {name: [] for name in names if name == NEIGHBOR or name in wanted}
        num_read = min(num_batches, SLOW_BATCHES) if store in SLOW else num_batches
        for _ in range(arguments.turns):
            for name, turns in by_name.items():
                turns.append(measure_reading(dataset, name, store, num_read, arguments.dir, disk))
        reading[store] = by_name
        print_reading(f"{store}, {num_read} batches", by_name, out)
    ratios = [("distinct nodes of labor", sampled[LABOR].num_nodes / sampled[NEIGHBOR].num_nodes, MOST_NODES)]
    for store, by_name in reading.items():
        if store == CLAIMED_STORE and DEPENDENT_LABOR in by_name:
            each = zip(by_name[DEPENDENT_LABOR], by_name[NEIGHBOR], strict=True)
            ratio = float(np.median([labor.bytes_read / neighbor.bytes_read for labor, neighbor in each]))
            ratios.append((f"bytes of {DEPENDENT_LABOR}, {store}", ratio, MOST_BYTES))
    is_w = dataset.num_nodes == W.num_nodes
    out("")
    for what, ratio, most in ratios:
        judged = f"at most {most}: {'met' if ratio <= most else 'MISSED'}" if is_w else f"no claim; on W at most {most}"
        out(f"{what}: {ratio:.3f} of neighbour sampling's, {judged}")
    if arguments.json:
        document = {
            "benchmark": "samplers",
            "sampling": {name: asdict(row) for name, row in sampled.items()},
            "reading": {
                store: {name: [asdict(each) for each in turns] for name, turns in by_name.items()}
                for store, by_name in reading.items()
            },
            "ratios": [{"what": what, "ratio": ratio, "most": most} for what, ratio, most in ratios],
        }
        print(json.dumps(document, indent=1))
    return 0 if not is_w or all(ratio <= most for _, ratio, most in ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
