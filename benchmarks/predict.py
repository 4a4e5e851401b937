"""Predictions for all nodes within a tenth of the largest table, compared with RAM, the disk and NeighborLoader.

Claims (issue 38), for SAGE 3 x 256 with 47 classes over 4 M nodes, 60 M edges and 128 float32 features, under a memory
cap: at most 1.5 times the larger of the plan's bytes at the disk's measured rate and our own sums and products in RAM;
at least 10 times faster than NeighborLoader with all neighbours; GAT (4 heads of 64) at most 3 times SAGE's time;
seconds per node at most 1.15 times those of a graph of a quarter the size; peak memory within budget and overhead.

The largest table has the hidden rows. RAM: sums of all columns that the layers sum, by the core's kernel over lists in
memory, then the layers' matrix products by the same kernel, nothing else. NeighborLoader: all predictions of random
seed nodes, in batches; seconds per seed node times all nodes. It gets more memory, since a batch of three whole hops
does not fit. Overhead: peak memory of the same predictions over 1000 nodes, and 100 MB. Each turn has its own process;
its files are not in the page cache. Weights are random.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import diskhop
from cgroups import run_limited, why_no_limit
from diskhop._native import BufferPool, aggregate
from diskhop.budget import Budget, format_bytes, parse_bytes
from diskhop.dataset.dataset import Dataset
from diskhop.disk.probe import remembered_model
from diskhop.hops.tables import TILE_COLUMNS
from diskhop.io.engine import open_engine
from diskhop.nn.activation import elu, relu
from diskhop.nn.matmul.choice import fastest_products
from diskhop.nn.models import GatLayer, Network, SageLayer
from diskhop.planning.predict import StreamedPlan
from diskhop.predicting.streamed.layers import num_tiles, streamed_layers
from diskhop.predicting.streamed.row_products import RowProduct
from diskhop.predicting.streamed.run import StreamedRun
from diskhop.runtime.tasks import TaskTools, WorkFolder
from diskhop.system.transfers import transfers
from propagate import DISK_ROUNDS, Size, find_graph
from turns import Disk, back_memory, measure_disk, peak_rss_bytes
from workloads import DEFAULT_FOLDER, evict

MOST_OF_BOUND, LEAST_OF_LOADER, MOST_OF_SAGE, MOST_GROWTH = 1.5, 10.0, 3.0, 1.15
# Pages of libraries that only a long run touches, and what the allocator keeps.
OVERHEAD_BYTES = 100_000_000
HEADS = 4
# Rows of one product in RAM, and rows of its operand: more than the caches hold.
PRODUCT_ROWS, OPERAND_ROWS = 4096, 1 << 16
TURNS = ("sage", "ram", "quarter", "gat", "loader")
TINY_NODES, TINY_MEMORY_BYTES = 1000, 20_000_000


@dataclass(frozen=True, kw_only=True)
class Case:
    """A graph and a network.

    model: sage or gat.
    memory_bytes: budget of our run.
    loader_memory_bytes: budget of NeighborLoader. loader_batch, loader_batches: its seed nodes per batch, and batches.
    """

    num_nodes: int
    num_edges: int
    dim: int
    model: str
    hidden: int
    layers: int
    classes: int
    memory_bytes: int
    loader_memory_bytes: int
    loader_batch: int
    loader_batches: int

    def find_graph(self, folder: Path) -> Dataset:
        return find_graph(folder, Size(self.num_nodes, self.num_edges, self.dim, 0, 0))

    def network(self) -> Network:
        """Make the network, with random weights."""
        torch.manual_seed(0)
        products = fastest_products()

        def sage(in_dim: int, out_dim: int, _: bool) -> SageLayer:
            return SageLayer(in_dim, out_dim, products)

        def gat(in_dim: int, out_dim: int, is_last: bool) -> GatLayer:
            return GatLayer(in_dim, out_dim, heads=1 if is_last else HEADS, dropout=0.0, products=products)

        make, activation = (gat, elu) if self.model == "gat" else (sage, relu)
        sizes = self.dim, self.hidden, self.classes, self.layers
        return Network(make, *sizes, activation=activation, products=products).eval()


class Run(NamedTuple):
    """Costs of one process.

    seconds: without imports, building the network and reading into RAM. num_nodes: nodes predicted in that time.
    planned_read, planned_written: bytes as planned, 0 in RAM. moved: bytes of disk I/O.
    """

    seconds: float
    num_nodes: int
    peak_rss_bytes: int
    planned_read: int
    planned_written: int
    moved: int
    stages: dict[str, float]

    @property
    def seconds_per_node(self) -> float:
        return self.seconds / self.num_nodes


def from_disk(dataset: Dataset, case: Case, threads: int) -> Run:
    """Predict within the budget; the work folder is removed."""
    plans: list[StreamedPlan] = []
    engine = open_engine().engine
    run = StreamedRun(
        dataset=dataset,
        network=case.network(),
        wanted=frozenset({case.layers}),
        budget=Budget(case.memory_bytes),
        threads=threads,
        tools=TaskTools(engine),
        disk=remembered_model(dataset.path, engine.name),
    )
    back_memory(case.memory_bytes)
    with WorkFolder(dataset.path.with_name(f"{dataset.path.name}-predictions")) as work:
        begin = time.perf_counter()
        with run.compute(work, plans.append) as computed:
            seconds = time.perf_counter() - begin
            stages = {step["step"]: round(step["seconds"], 2) for step in computed.steps}
        work.remove()
    plan = plans[0]
    return Run(seconds, case.num_nodes, peak_rss_bytes(), plan.bytes_read, plan.bytes_written, bytes_moved(), stages)


def in_memory(dataset: Dataset, case: Case, threads: int) -> Run:
    """Time sums and products of all layers over arrays in memory."""
    topology = dataset.topology
    indptr = np.fromfile(topology.indptr_path, np.int64).astype(np.int32)
    indices = np.fromfile(topology.indices_path, topology.index_dtype).astype(np.int32)
    network = case.network()
    layers = streamed_layers(network)
    columns = [TILE_COLUMNS * sum(num_tiles(layer.groups[name]) for name in layer.summed) for layer in layers]
    most_values = case.num_nodes * max(columns)
    pool = BufferPool(0)
    x, out = (pool.take(4 * most_values).view(np.float32) for _ in range(2))
    x[:], out[:] = 1, 0

    def sums(width: int) -> None:
        rows, to = (array[: case.num_nodes * width].reshape(-1, width) for array in (x, out))
        aggregate(indptr, indices, None, None, False, None, rows, to, threads)

    stages = {}
    for number, (layer, width) in enumerate(zip(layers, columns, strict=True), 1):
        stages[f"layer {number}: sums"] = seconds_of(lambda width=width: sums(width))  # type: ignore[misc]
        stages[f"layer {number}: products"] = seconds_of(
            multiplied(network.convs[number - 1], layer.aggregates_first, case.num_nodes)
        )
    seconds = sum(stages.values())
    return Run(seconds, case.num_nodes, peak_rss_bytes(), 0, 0, 0, {k: round(v, 2) for k, v in stages.items()})


def multiplied(conv: torch.nn.Module, aggregates_first: bool, num_rows: int) -> Callable[[], None]:
    """Return a function that computes a SAGE layer's products for all rows, as one product of both weights."""
    assert isinstance(conv, SageLayer), "timed for SAGE alone"
    weight = torch.cat([conv.lin_l.weight, conv.lin_r.weight], dim=1 if aggregates_first else 0)
    product = RowProduct(fastest_products(), weight)
    operand = torch.randn(OPERAND_ROWS, weight.shape[1])

    def multiply() -> None:
        for start in range(0, num_rows, PRODUCT_ROWS):
            first = start % OPERAND_ROWS
            product.of_rows(operand[first : first + min(PRODUCT_ROWS, num_rows - start)])

    return multiply


def seconds_of(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def by_loader(dataset: Dataset, case: Case, threads: int) -> Run:
    """Predict for random seed nodes by NeighborLoader with all neighbours."""
    network = case.network()
    num_seeds = min(case.num_nodes, case.loader_batch * case.loader_batches)
    seeds: NDArray[np.int64] = np.random.default_rng(0).choice(dataset.node_ids(), num_seeds, replace=False)
    num_rows = 0
    with (
        torch.no_grad(),
        diskhop.NeighborLoader(
            dataset,
            [-1] * case.layers,
            seeds,
            batch_size=case.loader_batch,
            memory=case.loader_memory_bytes,
            threads=threads,
        ) as loader,
    ):
        begin = time.perf_counter()
        for batch in loader:
            num_rows += batch.num_nodes
            network(batch.x, batch.block)
            del batch
        seconds = time.perf_counter() - begin
    return Run(seconds, num_seeds, peak_rss_bytes(), 0, 0, bytes_moved(), {"rows per seed node": num_rows / num_seeds})


def bytes_moved() -> int:
    """Return the bytes that this process read from the disk and wrote to it."""
    return transfers().bytes_read + transfers().bytes_written


KINDS: dict[str, Callable[[Dataset, Case, int], Run]] = {"disk": from_disk, "ram": in_memory, "loader": by_loader}


def take_turn(kind: str, folder: Path, case: Case, limit_bytes: int | None) -> Run:
    """Run a turn in its own process; limit_bytes: of its memory, page cache included."""
    evict(case.find_graph(folder))
    command = [sys.executable, __file__, "--turn", kind, "--dir", str(folder), "--case", json.dumps(asdict(case))]
    done = run_limited(command, limit_bytes)
    if done.returncode != 0:
        sys.exit(f"{kind} failed with {done.returncode}: {done.errors[-2000:]}")
    return Run(*json.loads(done.output))


def bound_seconds(run: Run, disk: Disk) -> float:
    """Return the seconds for the planned bytes at the disk's rate."""
    return run.planned_read / disk.read_rate + run.planned_written / disk.write_rate


@dataclass(frozen=True)
class Ratio:
    """A figure of every round, and its claim: at most, or at least, a bound."""

    text: str
    values: Sequence[float]
    bound: float
    is_most: bool = True

    @property
    def is_met(self) -> bool:
        value = statistics.median(self.values)
        return value <= self.bound if self.is_most else value >= self.bound

    def __str__(self) -> str:
        side = "most" if self.is_most else "least"
        spread = f"{min(self.values):.2f} to {max(self.values):.2f}"
        return f"{statistics.median(self.values):.2f} ({spread}) {self.text}, at {side} {self.bound:g}"


def ratios(rounds: Sequence[dict[str, Run]], disks: Sequence[Disk]) -> list[Ratio]:
    """Compare the turns of each round with one another, because the machine varies from minute to minute."""

    def of_bound(turns: dict[str, Run], disk: Disk) -> float:
        return turns["sage"].seconds / max(bound_seconds(turns["sage"], disk), turns["ram"].seconds)

    found = []
    if "ram" in rounds[0]:
        values = [of_bound(*pair) for pair in zip(rounds, disks, strict=True)]
        found.append(Ratio("times the bound", values, MOST_OF_BOUND))
    for kind, text, bound, is_most in (
        ("gat", "times SAGE's time for GAT", MOST_OF_SAGE, True),
        ("loader", "times faster than NeighborLoader", LEAST_OF_LOADER, False),
    ):
        if kind in rounds[0]:
            values = [turns[kind].seconds_per_node / turns["sage"].seconds_per_node for turns in rounds]
            found.append(Ratio(text, values, bound, is_most))
    if "quarter" in rounds[0]:
        values = [turns["sage"].seconds_per_node / turns["quarter"].seconds_per_node for turns in rounds]
        found.append(Ratio("times the seconds per node of a quarter", values, MOST_GROWTH))
    return found


def show(name: str, run: Run) -> str:
    stages = ", ".join(f"{stage} {value:,.1f}" for stage, value in run.stages.items())
    return (
        f"{name:8}{run.seconds:9.2f} s{run.seconds_per_node * 1e6:12,.2f} us/node"
        f"{run.peak_rss_bytes / 1e6:8,.0f} MB peak{run.planned_read / 1e9:7.2f} GB read"
        f"{run.planned_written / 1e9:7.2f} GB written{run.moved / 1e9:7.2f} GB moved  {stages}"
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="where graphs are kept: 10 times the features")
    parser.add_argument("--nodes", type=int, default=4_000_000)
    parser.add_argument("--degree", type=int, default=15, help="edges per node")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--classes", type=int, default=47)
    parser.add_argument("--share", type=float, default=0.1, help="--memory as a share of the largest table's bytes")
    parser.add_argument("--loader-memory", type=parse_bytes, default=parse_bytes("8GB"), help="of NeighborLoader")
    parser.add_argument("--loader-batch", type=int, default=100, help="seed nodes per batch of NeighborLoader")
    parser.add_argument("--loader-batches", type=int, default=3, help="batches of NeighborLoader")
    parser.add_argument("--repeats", type=int, default=3, help="rounds of all turns")
    parser.add_argument("--turns", nargs="+", choices=TURNS, default=list(TURNS), help="what to compare; sage always")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    parser.add_argument("--turn", choices=list(KINDS), help=argparse.SUPPRESS)
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if arguments.turn:
        case = Case(**arguments.case)
        threads = len(os.sched_getaffinity(0))
        print(json.dumps(KINDS[arguments.turn](case.find_graph(arguments.dir), case, threads)))
        return 0
    obstacle = why_no_limit()

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    def case_of(num_nodes: int, model: str = "sage") -> Case:
        largest_bytes = 4 * num_nodes * max(arguments.dim, arguments.hidden)
        return Case(
            num_nodes=num_nodes,
            num_edges=num_nodes * arguments.degree,
            dim=arguments.dim,
            model=model,
            hidden=arguments.hidden,
            layers=arguments.layers,
            classes=arguments.classes,
            memory_bytes=int(largest_bytes * arguments.share),
            loader_memory_bytes=arguments.loader_memory,
            loader_batch=arguments.loader_batch,
            loader_batches=arguments.loader_batches,
        )

    full, quarter, gat = case_of(arguments.nodes), case_of(arguments.nodes // 4), case_of(arguments.nodes, "gat")
    cases = {"sage": ("disk", full), "ram": ("ram", full), "quarter": ("disk", quarter), "gat": ("disk", gat)}
    cases["loader"] = ("loader", full)
    chosen = [name for name in TURNS if name == "sage" or name in arguments.turns]
    table = full.find_graph(arguments.dir).feature_table()
    assert table is not None
    models = [name for name in chosen if name in ("sage", "gat")]
    overhead_bytes = OVERHEAD_BYTES + max(
        take_turn("disk", arguments.dir, tiny, None).peak_rss_bytes
        for tiny in (replace(case_of(TINY_NODES, model), memory_bytes=TINY_MEMORY_BYTES) for model in models)
    )
    most_bytes = full.memory_bytes + overhead_bytes
    cap = f"NO cap ({obstacle})" if obstacle else f"cap {format_bytes(most_bytes)}"
    budget = f"--memory {format_bytes(full.memory_bytes)}, overhead {format_bytes(overhead_bytes)}"
    out(f"{budget}; {cap}, page cache included")
    rounds: list[dict[str, Run]] = []
    disks: list[Disk] = []
    for _ in range(arguments.repeats):
        before = measure_disk(arguments.dir, table.path, rounds=DISK_ROUNDS)
        rounds.append({})
        for name in chosen:
            kind, case = cases[name]
            is_capped = kind == "disk" and not obstacle
            limit_bytes = case.memory_bytes + overhead_bytes if is_capped else None
            rounds[-1][name] = take_turn(kind, arguments.dir, case, limit_bytes)
            out(show(name, rounds[-1][name]))
            if name == "sage":
                # The rate of a rented disk varies within seconds, and its first GiB is the fastest.
                disks.append(before.mean(measure_disk(arguments.dir, table.path, rounds=DISK_ROUNDS)))
    claims = {str(each): each.is_met for each in ratios(rounds, disks)}
    for name in models:
        peak_bytes = max(turns[name].peak_rss_bytes for turns in rounds)
        text = f"{name}: peak {format_bytes(peak_bytes)}, at most {format_bytes(most_bytes)}"
        claims[text] = peak_bytes <= most_bytes
    rates = disks[-1]
    speeds = f"{rates.read_rate / 1e9:.2f} GB/s read, {rates.write_rate / 1e9:.2f} GB/s written"
    out(f"the disk alone, {DISK_ROUNDS} GiB each way before and after: {speeds}")
    out(f"the plan's bytes at that: {bound_seconds(rounds[-1]['sage'], rates):.2f} s")
    for claim, is_met in claims.items():
        out(f"{claim}: {'met' if is_met else 'MISSED'}")
    if arguments.json:
        document: dict[str, Any] = {"benchmark": "predict", "case": asdict(full), "claims": claims}
        document["rounds"] = [{name: run._asdict() for name, run in turns.items()} for turns in rounds]
        document["disk"] = [{"read_rate": each.read_rate, "write_rate": each.write_rate} for each in disks]
        print(json.dumps(document, indent=1))
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
