"""Embeddings from partitions on disk, compared with all in memory, with no overlap, and with a plain autograd loop.

    python benchmarks/embeddings.py [--parts compute,io,autograd] [--dir DIR] [--repeats 3]

Claims (issue 9). compute: 2 M nodes, 40 M edges, dim 100, 8 partitions of which 3 are trained at once, 1000 negatives,
batches of 50,000: edges/s from disk at least 97 % of all in memory, 70 % of what the step's matrix products alone would
take, and 200,000 for Dot; 180,000 for ComplEx, with a relation per edge. io: 10 M nodes, 20 M edges, 50 negatives, 24
partitions, which take about as long to move as to train (8 take a fifth of that): at least 1.5 times as fast as without
overlap; stalls at most the time by which I/O exceeds computing, plus 5 %; bytes as the order predicts. autograd: the
same model, dimension and negatives as PyTorch-BigGraph's in a loop of torch's own, at least 4 times its edges/s
(PyTorch-BigGraph itself needs versions of torch that no longer exist). Each run has its own process, under a memory
cap.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from cgroups import run_limited, why_no_limit
from diskhop.budget import format_bytes
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.embedding.partitions.edges import EdgeRows
from diskhop.embedding.step.gradients import StepOptions
from diskhop.embedding.step.step import Step, Table
from diskhop.generating import GraphConfig, generate_graph
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from diskhop.runs.start import embed
from diskhop.system.transfers import transfers
from turns import measure_disk, peak_rss_bytes
from workloads import DEFAULT_FOLDER, evict

LEAST_OF_MEMORY, LEAST_OF_ROOFLINE, LEAST_GAIN, MOST_STALL, LEAST_OF_AUTOGRAD = 0.97, 0.7, 1.5, 0.05, 4.0
LEAST_EDGES_PER_SECOND = {"dot": 200_000, "complex": 180_000}
OVERHEAD_BYTES = 600_000_000  # PyTorch and its working memory.
NUM_PARTITIONS, NUM_IO_PARTITIONS, DIM, NUM_RELATIONS = 8, 24, 100, 200


class Workload(NamedTuple):
    """Graph to embed, and its number of negatives."""

    num_nodes: int
    num_edges: int
    num_negatives: int
    chunk_size: int
    has_relations: bool = False

    @property
    def name(self) -> str:
        return f"kronecker-{self.num_nodes}-{self.num_edges}{'-relations' if self.has_relations else ''}"


COMPUTE = Workload(2_000_000, 40_000_000, 1000, 2500)
IO = Workload(10_000_000, 20_000_000, 50, 2500)
RUNS: dict[str, tuple[Workload, dict[str, Any]]] = {
    "disk": (COMPUTE, {"partitions": NUM_PARTITIONS}),
    "memory": (COMPUTE, {"partitions": 1}),
    "relations": (COMPUTE._replace(has_relations=True), {"partitions": NUM_PARTITIONS}),
    # The second epoch is measured: like all later ones, it begins with partitions in memory.
    "overlap": (IO, {"partitions": NUM_IO_PARTITIONS, "epochs": 2}),
    "no overlap": (IO, {"partitions": NUM_IO_PARTITIONS, "epochs": 2, "overlap": False}),
}


class Run(NamedTuple):
    """Costs of one process in its last epoch. bytes: of partitions. moved: disk I/O that the kernel counted."""

    seconds: float
    edges_per_second: float
    stall_seconds: float
    bytes_read: int
    bytes_written: int
    moved: int
    peak_rss_bytes: int
    loads: int
    partition_bytes: int


def find_graph(folder: Path, workload: Workload) -> Dataset:
    path = folder / workload.name
    if not path.exists():
        if workload.has_relations:
            return add_relations(find_graph(folder, workload._replace(has_relations=False)), path)
        print(f"making {path}", file=sys.stderr, flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        config = GraphConfig(
            kind="kronecker", num_nodes=workload.num_nodes, num_edges=workload.num_edges, dim=0, num_classes=0, seed=2
        )
        generate_graph(path, config, engine=open_engine("auto").engine)
    return open_dataset(path)


def add_relations(plain: Dataset, path: Path) -> Dataset:
    """Write a copy of the graph with a relation per edge, drawn uniformly."""
    print(f"making {path}", file=sys.stderr, flush=True)
    files = plain.topology
    indptr = np.fromfile(files.indptr_path, np.int64)
    sources = np.fromfile(files.indices_path, files.index_dtype)
    relations = np.random.default_rng(2).integers(0, NUM_RELATIONS, files.num_edges)
    destinations = np.repeat(np.arange(files.num_nodes), np.diff(indptr))
    with tempfile.TemporaryDirectory(dir=path.parent) as source:
        triples = np.stack([sources, relations, destinations], 1)
        np.savez(Path(source) / "data.npz", train=triples, num_entities=files.num_nodes, num_relations=NUM_RELATIONS)
        del triples, sources, relations, destinations
        return import_graph(Path(source), path, engine=open_engine("auto").engine)


def run_turn(name: str, model: str, folder: Path, memory: int) -> Run:
    workload, options = RUNS[name]
    out = folder / "embedding-run"
    shutil.rmtree(out, ignore_errors=True)
    done = embed(
        find_graph(folder, workload), out=out, model=model, dim=DIM, batch_size=50_000, chunk_size=workload.chunk_size,
        negatives=workload.num_negatives, evaluate=False, memory=memory, seed=1, **{"epochs": 1, **options},
    )  # fmt: skip
    shutil.rmtree(out)
    epoch, plan = done.result["epochs"][-1], done.result["plan"]
    after = transfers()
    moved = after.bytes_read + after.bytes_written
    return Run(
        epoch["seconds"], epoch["edges_per_second"], epoch["stall_seconds"], epoch["bytes_read"],
        epoch["bytes_written"], moved, peak_rss_bytes(), plan["loads"], plan["partition_bytes"],
    )  # fmt: skip


def take_turn(name: str, model: str, folder: Path, memory: int, is_capped: bool) -> Run:
    evict(find_graph(folder, RUNS[name][0]))
    command = [
        sys.executable,
        __file__,
        "--turn",
        name,
        "--model",
        model,
        "--dir",
        str(folder),
        "--memory",
        str(memory),
    ]
    done = run_limited(command, memory + OVERHEAD_BYTES if is_capped else None)
    if done.returncode != 0:
        sys.exit(f"{name} failed with {done.returncode}: {done.errors[-2000:]}")
    run = Run(*json.loads(done.output.splitlines()[-1]))
    print(
        f"{name:12}{model:8}{run.edges_per_second:12,.0f} edges/s{run.seconds:9.1f} s{run.stall_seconds:8.1f} s stalled"
        f"{run.bytes_read / 1e9:8.2f} GB read{run.bytes_written / 1e9:8.2f} GB written{run.moved / 1e9:8.2f} GB moved"
        f"{run.peak_rss_bytes / 1e6:8,.0f} MB peak",
        flush=True,
    )
    return run


def roofline(workload: Workload, threads: int) -> float:
    """Measure edges per second of the six matrix products of a chunk alone."""
    torch.set_num_threads(threads)
    queries, nodes = torch.randn(workload.chunk_size, DIM), torch.randn(workload.num_negatives, DIM)
    scores = torch.empty(workload.chunk_size, workload.num_negatives)
    of_queries, of_nodes = torch.empty_like(queries), torch.empty_like(nodes)
    best = float("inf")
    for _ in range(40):
        begin = time.perf_counter()
        torch.mm(queries, nodes.t(), out=scores)
        torch.mm(scores, nodes, out=of_queries)
        torch.mm(scores.t(), queries, out=of_nodes)
        best = min(best, time.perf_counter() - begin)
    return workload.chunk_size / (2 * best)


def steps_per_second(model: str, repeats: int) -> tuple[list[float], list[float]]:
    """Measure edges per second of our step and autograd's, alternately, on the rows of the partitions in memory."""
    draws = np.random.default_rng(0)
    batch_size, chunk_size, num_negatives = 50_000, COMPUTE.chunk_size, COMPUTE.num_negatives
    num_rows = 3 * COMPUTE.num_nodes // NUM_PARTITIONS
    options = StepOptions(
        model=model, loss="softmax", margin=0.0, lr=0.1, batch_size=batch_size, chunk_size=chunk_size,
        num_negatives=num_negatives, reciprocal=False, n3=0.0, l2=0.0, dropout=0.0,
    )  # fmt: skip
    values = draws.normal(0, 0.1, (num_rows, DIM)).astype(np.float32)
    of_relations = draws.normal(0, 0.1, (NUM_RELATIONS, DIM)).astype(np.float32)
    step = Step(
        options, Table(values.copy(), np.zeros((num_rows, 1), np.float32)),
        None if model == "dot" else Table(of_relations.copy(), np.zeros((NUM_RELATIONS, 1), np.float32)),
    )  # fmt: skip
    plain = Autograd(values, of_relations)
    ours, theirs = [], []
    for _ in range(repeats + 1):
        ends = draws.integers(0, num_rows, (2, batch_size))
        edges = EdgeRows(ends[0], draws.integers(0, NUM_RELATIONS, batch_size).astype(np.int32), ends[1])
        negatives = draws.integers(0, num_rows, (2, batch_size // chunk_size, num_negatives))
        begin = time.perf_counter()
        loss = step.run(edges, negatives, torch.Generator().manual_seed)
        between = time.perf_counter()
        other = plain.run(edges, negatives, chunk_size, model)
        ours.append(batch_size / (between - begin))
        theirs.append(batch_size / (time.perf_counter() - between))
        assert abs(loss - other) < 1e-3 * abs(other), "both are of the same loss"
    return ours[1:], theirs[1:]


class Autograd:
    """The plain step: sparse gradients of nn.Embedding, torch's own Adagrad."""

    def __init__(self, values: np.ndarray, of_relations: np.ndarray) -> None:
        torch.sparse.check_sparse_tensor_invariants.disable()  # type: ignore[no-untyped-call]  # else it warns
        self._nodes, self._relations = (
            torch.nn.Embedding(len(each), each.shape[1], sparse=True, _weight=torch.from_numpy(each.copy()))
            for each in (values, of_relations)
        )
        parameters = [*self._nodes.parameters(), *self._relations.parameters()]
        self._optimizer = torch.optim.Adagrad(parameters, lr=0.1)

    def run(self, edges: EdgeRows, negatives: np.ndarray, chunk_size: int, model: str) -> float:
        """Train on one batch and return the sum of its losses."""
        self._optimizer.zero_grad()
        total = torch.zeros(())
        for number in range(negatives.shape[1]):
            rows = slice(number * chunk_size, (number + 1) * chunk_size)
            source = self._nodes(torch.from_numpy(edges.sources[rows]))
            destination = self._nodes(torch.from_numpy(edges.destinations[rows]))
            assert edges.relations is not None
            relation = self._relations(torch.from_numpy(edges.relations[rows]).long())
            for side, (query, wanted) in enumerate(self._queries(source, relation, destination, model)):
                others = self._nodes(torch.from_numpy(negatives[side, number]))
                scores = torch.cat([(query * wanted).sum(1, keepdim=True), query @ others.t()], 1)
                target = torch.zeros(len(query), dtype=torch.long)
                total = total + functional.cross_entropy(scores, target, reduction="sum")
        torch.autograd.backward(total)
        self._optimizer.step()
        return float(total.detach())

    @staticmethod
    def _queries(
        source: torch.Tensor, relation: torch.Tensor, destination: torch.Tensor, model: str
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        if model == "dot":
            return [(source, destination), (destination, source)]
        s, r, t = (torch.complex(*each.chunk(2, 1)) for each in (source, relation, destination))
        tail, head = s * r, t * r.conj()
        return [
            (torch.cat([tail.real, tail.imag], 1), destination),
            (torch.cat([head.real, head.imag], 1), source),
        ]


def report(claims: dict[str, bool]) -> int:
    for claim, is_met in claims.items():
        print(f"{claim}: {'met' if is_met else 'MISSED'}", flush=True)
    return sum(not is_met for is_met in claims.values())


def compute_part(folder: Path, repeats: int, is_capped: bool, threads: int) -> int:
    disk_memory, all_memory = 1_500_000_000, 6_000_000_000
    shares, of_products = [], []
    found: dict[str, list[float]] = {model: [] for model in LEAST_EDGES_PER_SECOND}
    for _ in range(repeats):
        most = roofline(COMPUTE, threads)
        disk = take_turn("disk", "dot", folder, disk_memory, is_capped)
        memory = take_turn("memory", "dot", folder, all_memory, False)
        of_complex = take_turn("relations", "complex", folder, disk_memory, is_capped)
        shares.append(disk.edges_per_second / memory.edges_per_second)
        of_products.append(disk.edges_per_second / most)
        found["dot"].append(disk.edges_per_second)
        found["complex"].append(of_complex.edges_per_second)
        print(f"products alone: {most:,.0f} edges/s", flush=True)
    share, of_product = statistics.median(shares), statistics.median(of_products)
    claims = {
        f"from disk {share:.3f} of all in memory, at least {LEAST_OF_MEMORY:g}": share >= LEAST_OF_MEMORY,
        f"from disk {of_product:.2f} of the products, at least {LEAST_OF_ROOFLINE:g}": of_product >= LEAST_OF_ROOFLINE,
    }
    for model, least in LEAST_EDGES_PER_SECOND.items():
        rate = statistics.median(found[model])
        claims[f"{model} {rate:,.0f} edges/s from disk, at least {least:,}"] = rate >= least
    return report(claims)


def io_part(folder: Path, repeats: int, is_capped: bool) -> int:
    memory = 1_500_000_000
    gains, stalls, moved_right = [], [], []
    for _ in range(repeats):
        alone = take_turn("no overlap", "dot", folder, memory, is_capped)
        overlapped = take_turn("overlap", "dot", folder, memory, is_capped)
        gains.append(alone.seconds / overlapped.seconds)
        # Without overlap all I/O stalls.
        computing = alone.seconds - alone.stall_seconds
        unavoidable = max(0.0, alone.stall_seconds - computing)
        stalls.append((overlapped.stall_seconds - unavoidable) / overlapped.seconds)
        # At the end of an epoch all partitions in memory are written.
        read, written = (number * overlapped.partition_bytes for number in (overlapped.loads, overlapped.loads + 3))
        moved_right += [(run.bytes_read, run.bytes_written) == (read, written) for run in (alone, overlapped)]
    gain, stall = statistics.median(gains), statistics.median(stalls)
    return report(
        {
            f"{gain:.2f} times as fast as without overlap, at least {LEAST_GAIN:g}": gain >= LEAST_GAIN,
            f"stalled {stall:+.1%} of the time beyond what I/O takes longer, at most {MOST_STALL:.0%}": stall
            <= MOST_STALL,
            "bytes read and written as the order has them": all(moved_right),
        }
    )


def autograd_part(repeats: int, threads: int) -> int:
    torch.set_num_threads(threads)
    missed = 0
    for model in ("dot", "complex"):
        most = roofline(COMPUTE, threads)
        ours, theirs = steps_per_second(model, max(3, repeats))
        ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
        print(f"{model:8} ours {statistics.median(ours):,.0f} edges/s, autograd {statistics.median(theirs):,.0f}")
        print(f"{statistics.median(ours) / most:.2f} of the products alone, {most:,.0f} edges/s")
        missed += report(
            {f"{model}: {ratio:.1f} times autograd, at least {LEAST_OF_AUTOGRAD:g}": ratio >= LEAST_OF_AUTOGRAD}
        )
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="where graphs and runs are kept: 12 GB")
    parser.add_argument("--parts", default="compute,io,autograd", help="with commas between them")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each")
    parser.add_argument("--turn", choices=list(RUNS), help=argparse.SUPPRESS)
    parser.add_argument("--model", default="dot", help=argparse.SUPPRESS)
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.turn:
        print(json.dumps(run_turn(arguments.turn, arguments.model, arguments.dir, arguments.memory)))
        return 0
    threads, obstacle = len(os.sched_getaffinity(0)), why_no_limit()
    print(f"{threads} threads; cap {f'none ({obstacle})' if obstacle else 'memory + ' + format_bytes(OVERHEAD_BYTES)}")
    missed = 0
    parts = arguments.parts.split(",")
    if "compute" in parts:
        missed += compute_part(arguments.dir, arguments.repeats, not obstacle, threads)
    if "io" in parts:
        missed += io_part(arguments.dir, arguments.repeats, not obstacle)
    if "autograd" in parts:
        missed += autograd_part(arguments.repeats, threads)
    table = next(iter(find_graph(arguments.dir, COMPUTE).path.glob("edges/*/indices.bin")))
    disk = measure_disk(arguments.dir, table)
    print(f"the disk alone: {disk.read_rate / 1e9:.2f} GB/s read, {disk.write_rate / 1e9:.2f} GB/s written")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
