"""Generated graphs: how fast edges and features are drawn, and whole datasets within a budget.

Claims (issue 3): `kronecker` with 400 M edges in at most 60 s at --memory 512MB; R-MAT edges drawn at four times the
rate of NumPy's vectors. Drawing alternates with NumPy, so that other load on the machine affects both; a ratio compares
one pair of turns. Each whole dataset is made in its own process; the kernel reports its peak memory and writes.
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from diskhop.budget import Budget, parse_bytes
from diskhop.dataset.dataset import open_dataset
from diskhop.generating import GraphConfig, generate_graph
from diskhop.generating.config import DEFAULT_RMAT
from diskhop.generating.edges import generated_edges
from diskhop.generating.nodes import GeneratedNodes
from diskhop.io.engine import open_engine
from turns import stage_clock, take_turn

MOST_SECONDS = 60.0
LEAST_RATIO = 4.0
EDGES_PER_BLOCK = 1 << 18
NODES_PER_BLOCK = 1 << 11
DIM = 128


def rate_of(count: int, act: Callable[[int], object], num_blocks: int = 1, threads: int = 1) -> float:
    """Measure items per second, drawn in num_blocks blocks."""
    with ThreadPoolExecutor(threads) as executor:
        started = time.perf_counter()
        list(executor.map(act, range(num_blocks)))
        return count / (time.perf_counter() - started)


def numpy_rmat(num_edges: int, levels: int, generator: np.random.Generator) -> None:
    """Draw from the same distribution with NumPy's vectors, without permuting ids."""
    low, middle, high = np.cumsum(DEFAULT_RMAT)[:3].astype(np.float32)
    sources, destinations = np.zeros(num_edges, np.uint32), np.zeros(num_edges, np.uint32)
    for _ in range(levels):
        draw = generator.random(num_edges, np.float32)
        sources = (sources << 1) | (draw >= middle)
        destinations = (destinations << 1) | ((draw >= low) & (draw < middle)) | (draw >= high)


def measure_streams(num_nodes: int, repeats: int) -> dict[str, Any]:
    """Measure edges and feature values per second, on one core and on two, and NumPy's R-MAT edges."""
    common: dict[str, Any] = {"num_nodes": num_nodes, "num_edges": 1 << 40, "dim": DIM, "num_classes": 47}
    sources = {kind: generated_edges(GraphConfig(kind=kind, **common)) for kind in ("kronecker", "uniform", "sbm")}
    nodes = GeneratedNodes(GraphConfig(kind="uniform", **common))
    generator = np.random.default_rng(0)
    levels = (num_nodes - 1).bit_length()

    def draw_edges(kind: str, block: int) -> None:
        sources[kind].read(block * EDGES_PER_BLOCK, EDGES_PER_BLOCK)

    def draw_rows(block: int) -> None:
        nodes.features(block * NODES_PER_BLOCK, (block + 1) * NODES_PER_BLOCK)

    rates: dict[str, list[float]] = {}
    for _ in range(repeats):
        turn: dict[str, float] = {}
        for threads in (1, 2):
            cores = "one core" if threads == 1 else "two cores"
            for kind in sources:
                act = partial(draw_edges, kind)
                turn[f"{kind} edges, {cores}"] = rate_of(32 * EDGES_PER_BLOCK, act, 32, threads)
            turn[f"feature values, {cores}"] = rate_of(256 * NODES_PER_BLOCK * DIM, draw_rows, 256, threads)
        turn["NumPy's kronecker edges"] = rate_of(1 << 20, lambda _: numpy_rmat(1 << 20, levels, generator))
        turn["NumPy's normal values"] = rate_of(1 << 22, lambda _: generator.standard_normal(1 << 22, np.float32))
        for name, rate in turn.items():
            rates.setdefault(name, []).append(rate)
    pairs = zip(rates["kronecker edges, one core"], rates["NumPy's kronecker edges"], strict=True)
    ratios = [ours / theirs for ours, theirs in pairs]
    return {"rates": rates, "ratios": ratios, "met": statistics.median(ratios) >= LEAST_RATIO}


def make_dataset(folder: Path, config: GraphConfig, memory_bytes: int, threads: int, stages: dict[str, float]) -> None:
    generate_graph(
        folder / "graph",
        config,
        engine=open_engine("auto").engine,
        budget=Budget(memory_bytes),
        threads=threads,
        progress=stage_clock(stages),
    )


def measure_dataset(folder: Path, wanted: dict[str, Any], memory: str, threads: int) -> dict[str, Any]:
    """Run make_dataset in its own process."""
    config = GraphConfig(**wanted)
    turn = take_turn(make_dataset, folder, config, parse_bytes(memory), threads)
    dataset = open_dataset(folder / "graph")
    dataset_bytes = sum(entry.num_bytes for entry in dataset.manifest.files.values())
    shutil.rmtree(folder / "graph")
    return {"config": wanted, "memory": memory, "threads": threads, "dataset_bytes": dataset_bytes, **asdict(turn)}


def print_dataset(made: dict[str, Any], out: Callable[[str], None]) -> None:
    config = made["config"]
    out(
        f"\n{config['kind']}, {config['num_nodes']:,} nodes, {config['num_edges']:,} edges, dim {config['dim']}, order "
        f"{config['order']}, --memory {made['memory']}, {made['threads']} threads: {made['seconds']:.1f} s, "
        f"{config['num_edges'] / made['seconds'] / 1e6:.1f} M edges/s"
    )
    out("  each stage ended after: " + ", ".join(f"{stage} {at:.1f} s" for stage, at in made["stages"].items()))
    out(
        f"  dataset {made['dataset_bytes'] / 1e9:.2f} GB, written {made['bytes_written'] / 1e9:.2f} GB, read "
        f"{made['bytes_read'] / 1e9:.2f} GB; peak memory {made['peak_rss_bytes'] / 1e6:,.0f} MB"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=Path(), help="a folder on the disk to write to")
    parser.add_argument("--nodes", type=int, default=16_000_000)
    parser.add_argument("--edges", type=int, default=400_000_000)
    parser.add_argument("--memory", default="512MB")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3, help="turns of drawing")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the tables on stderr")
    arguments = parser.parse_args()

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    streams = measure_streams(arguments.nodes, arguments.repeats)
    for name, rates in streams["rates"].items():
        out(f"{name:36}{statistics.median(rates) / 1e6:8.0f} M/s ({min(rates) / 1e6:.0f}..{max(rates) / 1e6:.0f})")
    ratio = statistics.median(streams["ratios"])
    out(f"kronecker edges on one core: {ratio:.0f} times NumPy's, {LEAST_RATIO:.0f} wanted: {verdict(streams['met'])}")
    large: dict[str, Any] = {"kind": "kronecker", "num_nodes": arguments.nodes, "num_edges": arguments.edges}
    workload_w: dict[str, Any] = {"kind": "kronecker", "num_nodes": 4_000_000, "num_edges": 60_000_000}
    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="diskhop-bench-") as folder:
        datasets = [
            measure_dataset(
                Path(folder), {**large, "dim": 0, "num_classes": 0, "order": order}, arguments.memory, count
            )
            for order, count in (("input", arguments.threads), ("hot", arguments.threads))
        ]
        datasets.append(
            measure_dataset(
                Path(folder),
                {**workload_w, "dim": DIM, "num_classes": 47, "order": "hot"},
                arguments.memory,
                arguments.threads,
            )
        )
    for made in datasets:
        print_dataset(made, out)
    met = datasets[0]["seconds"] <= MOST_SECONDS
    out(f"\n{datasets[0]['seconds']:.1f} s in input order, {MOST_SECONDS:.0f} s allowed: {verdict(met)}")
    if arguments.json:
        print(json.dumps({"benchmark": "generate", "cores": os.cpu_count(), "streams": streams, "datasets": datasets}))
    return 0 if met and streams["met"] else 1


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


if __name__ == "__main__":
    sys.exit(main())
