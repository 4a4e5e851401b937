"""Features propagated within a tenth of their table's size, compared with SciPy in RAM and with the disk, in one run.

Claims (issue 8), for 3 hops of `sign` over 4 M nodes, 60 M edges and 128 float32 features, under a memory cap: at most
half the time of SciPy's `A @ X` with everything in RAM; at most 1.5 times the larger of the plan's bytes at the disk's
measured rate and our own product in RAM; seconds per edge and feature at most 1.15 times those of a graph of a quarter
the size. Each run has its own process; its files are not in the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cgroups import run_limited, why_no_limit
from diskhop._native import aggregate
from diskhop.budget import format_bytes
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.generating import GraphConfig, generate_graph
from diskhop.hops.make.plan import PropagationPlan
from diskhop.hops.make.propagate import propagate
from diskhop.hops.spec import PropagationSpec
from diskhop.io.engine import open_engine
from diskhop.system.transfers import transfers
from turns import Disk, back_memory, measure_disk, peak_rss_bytes
from workloads import DEFAULT_FOLDER, evict

MOST_OF_SCIPY, MOST_OF_BOUND, MOST_GROWTH = 0.5, 1.5, 1.15
# GiB read and written to measure the disk before and after a run: together about the planned bytes.
DISK_ROUNDS = 6
# Python, NumPy and the core, which are not in the budget.
OVERHEAD_BYTES = 150_000_000


class Run(NamedTuple):
    """Costs of one process. seconds: without reading input. bytes: as planned, 0 in RAM. moved: bytes of disk I/O."""

    seconds: float
    peak_rss_bytes: int
    columns: int
    planned_read: int
    planned_written: int
    moved: int
    stages: dict[str, float]


class Size(NamedTuple):
    """Features to propagate. memory_bytes: budget of our run."""

    num_nodes: int
    num_edges: int
    dim: int
    hops: int
    memory_bytes: int

    @property
    def products(self) -> int:
        """Number of edges times features."""
        return self.num_edges * self.dim * self.hops


def find_graph(folder: Path, size: Size) -> Dataset:
    path = folder / f"kronecker-{size.num_nodes}-{size.num_edges}-{size.dim}"
    if not path.exists():
        print(f"making {path}", file=sys.stderr, flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        config = GraphConfig(
            kind="kronecker",
            num_nodes=size.num_nodes,
            num_edges=size.num_edges,
            dim=size.dim,
            num_classes=0,
            order="hot",
            seed=1,
        )
        generate_graph(path, config, engine=open_engine().engine)
    return open_dataset(path)


def from_disk(dataset: Dataset, size: Size, keep: bool) -> Run:
    """Run diskhop; the tables are removed unless they are to be kept."""
    plans: list[PropagationPlan] = []
    back_memory(size.memory_bytes)
    scratch = dataset.path.with_name(f"{dataset.path.name}-tables")
    begin = time.perf_counter()
    done = propagate(
        dataset, PropagationSpec(hops=size.hops), memory=size.memory_bytes, scratch=scratch, on_plan=plans.append
    )
    seconds = time.perf_counter() - begin
    counts = transfers()
    stages = {step["step"]: round(step["seconds"], 2) for step in done.steps}
    if not keep:
        shutil.rmtree(scratch)
    plan = plans[0]
    moved = counts.bytes_read + counts.bytes_written
    return Run(seconds, peak_rss_bytes(), plan.columns, plan.bytes_read, plan.bytes_written, moved, stages)


def in_memory(dataset: Dataset, size: Size, is_ours: bool) -> Run:
    """Run SciPy's product, or the core's over lists in memory, of all columns; reading is not timed."""
    import scipy.sparse

    topology, table = dataset.topology, dataset.feature_table()
    assert table is not None
    indptr = np.fromfile(topology.indptr_path, np.int64)
    indices = np.fromfile(topology.indices_path, topology.index_dtype).astype(np.int32)
    x = np.fromfile(table.path, np.float32).reshape(size.num_nodes, -1)[:, : size.dim]
    degrees = np.diff(indptr)
    scales = np.divide(1, np.sqrt(degrees), where=degrees > 0, out=np.zeros(len(degrees))).astype(np.float32)
    weights = np.repeat(scales, degrees) * scales[indices]
    # Neither side should pay for memory that the machine returned to its host.
    out = x.copy() if is_ours else x
    back_memory(x.nbytes)
    indptr32 = indptr.astype(np.int32)
    matrix = scipy.sparse.csr_matrix((weights, indices, indptr32), shape=(size.num_nodes, size.num_nodes))
    begin = time.perf_counter()
    for _ in range(size.hops):
        if is_ours:
            aggregate(indptr32, indices, weights, None, False, None, x, out, len(os.sched_getaffinity(0)))
            x, out = out, x
        else:
            x = matrix @ x
    return Run(time.perf_counter() - begin, peak_rss_bytes(), size.dim, 0, 0, 0, {})


def run_turn(kind: str, folder: Path, size: Size) -> Run:
    dataset = find_graph(folder, size)
    return from_disk(dataset, size, keep=False) if kind == "disk" else in_memory(dataset, size, kind == "core")


def take_turn(kind: str, folder: Path, size: Size, is_capped: bool) -> Run:
    evict(find_graph(folder, size))
    command = [sys.executable, __file__, "--turn", kind, "--dir", str(folder), "--size", *map(str, size)]
    done = run_limited(command, size.memory_bytes + OVERHEAD_BYTES if is_capped and kind == "disk" else None)
    if done.returncode != 0:
        sys.exit(f"{kind} failed with {done.returncode}: {done.errors[-2000:]}")
    return Run(*json.loads(done.output))


def bound_seconds(run: Run, disk: Disk) -> float:
    """Return the seconds for the planned bytes at the disk's rate."""
    return run.planned_read / disk.read_rate + run.planned_written / disk.write_rate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="where graphs are kept: 6 times the features")
    parser.add_argument("--nodes", type=int, default=4_000_000)
    parser.add_argument("--degree", type=int, default=15, help="edges per node")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--hops", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.1, help="--memory as a share of the table's bytes")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    parser.add_argument("--turn", choices=["disk", "scipy", "core"], help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.turn:
        print(json.dumps(run_turn(arguments.turn, arguments.dir, Size(*arguments.size))))
        return 0
    obstacle = why_no_limit()

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    def size_of(num_nodes: int) -> Size:
        table_bytes = 4 * num_nodes * arguments.dim
        memory_bytes = int(table_bytes * arguments.share)
        return Size(num_nodes, num_nodes * arguments.degree, arguments.dim, arguments.hops, memory_bytes)

    full, quarter = size_of(arguments.nodes), size_of(arguments.nodes // 4)
    cap = f"NO cap ({obstacle})" if obstacle else f"cap {format_bytes(full.memory_bytes + OVERHEAD_BYTES)}"
    out(f"--memory {format_bytes(full.memory_bytes)}; {cap}, page cache included")
    table = find_graph(arguments.dir, full).feature_table()
    assert table is not None
    find_graph(arguments.dir, quarter)
    kinds = {"disk": full, "core": full, "scipy": full, "quarter": quarter}
    turns: dict[str, list[Run]] = {kind: [] for kind in kinds}
    disks: list[Disk] = []
    for _ in range(arguments.repeats):
        before = measure_disk(arguments.dir, table.path, rounds=DISK_ROUNDS)
        for kind, size in kinds.items():
            turns[kind].append(take_turn("disk" if kind == "quarter" else kind, arguments.dir, size, not obstacle))
            out(show(kind, turns[kind][-1], size))
            if kind == "disk":
                # The rate of a rented disk varies within seconds, and its first GiB is the fastest.
                disks.append(before.mean(measure_disk(arguments.dir, table.path, rounds=DISK_ROUNDS)))
    # Compared within each round, because the machine varies from minute to minute.
    rounds = list(zip(turns["disk"], turns["core"], turns["scipy"], turns["quarter"], disks, strict=True))
    of_scipy = statistics.median(disk.seconds / scipy.seconds for disk, _, scipy, _, _ in rounds)
    of_bound = statistics.median(
        disk.seconds / max(bound_seconds(disk, rates), core.seconds) for disk, core, _, _, rates in rounds
    )
    growth = statistics.median(
        disk.seconds / full.products / (small.seconds / quarter.products) for disk, _, _, small, _ in rounds
    )
    peak_bytes = max(run.peak_rss_bytes for run in turns["disk"])
    claims = {
        f"{of_scipy:.2f} of SciPy's time, at most {MOST_OF_SCIPY:g}": of_scipy <= MOST_OF_SCIPY,
        f"{of_bound:.2f} times the bound, at most {MOST_OF_BOUND:g}": of_bound <= MOST_OF_BOUND,
        f"{growth:.2f} times the time per edge and feature of a quarter, at most {MOST_GROWTH:g}": growth
        <= MOST_GROWTH,
        f"peak {format_bytes(peak_bytes)}, at most {format_bytes(full.memory_bytes + OVERHEAD_BYTES)}": peak_bytes
        <= full.memory_bytes + OVERHEAD_BYTES,
    }
    rates = disks[-1]
    speeds = f"{rates.read_rate / 1e9:.2f} GB/s read, {rates.write_rate / 1e9:.2f} GB/s written"
    out(f"the disk alone, {DISK_ROUNDS} GiB each way before and after: {speeds}")
    out(f"the plan's bytes at that: {bound_seconds(turns['disk'][-1], rates):.2f} s")
    for claim, is_met in claims.items():
        out(f"{claim}: {'met' if is_met else 'MISSED'}")
    if arguments.json:
        document: dict[str, Any] = {"benchmark": "propagate", "size": full._asdict(), "claims": claims}
        document["turns"] = {kind: [run._asdict() for run in runs] for kind, runs in turns.items()}
        document["disk"] = [{"read_rate": each.read_rate, "write_rate": each.write_rate} for each in disks]
        print(json.dumps(document, indent=1))
    return 0 if all(claims.values()) else 1


def show(name: str, run: Run, size: Size) -> str:
    stages = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in run.stages.items())
    return (
        f"{name:8}{run.columns:5} columns{run.seconds:9.2f} s{run.seconds / size.products * 1e12:9.1f} ps/edge/feature"
        f"{run.peak_rss_bytes / 1e6:8,.0f} MB peak{run.planned_read / 1e9:7.2f} GB read"
        f"{run.planned_written / 1e9:7.2f} GB written{run.moved / 1e9:7.2f} GB moved  {stages}"
    )


if __name__ == "__main__":
    sys.exit(main())
