"""Random edges from .npy to sorted lists on disk, compared with SciPy in memory and with the disk alone, in one run.

Claims (issue 3): 200 M edges at --memory 512MB take at most 10 s, with at most the budget + 150 MB resident; seconds
per edge at 800 M edges are at most 1.15 times those at 100 M. Imports alternate with SciPy, which reads the same file,
sorts it in memory and saves both arrays. Each turn runs in its own process, on a source that is not in the page cache.
The disk alone: the time for the bytes that the import moved, at the rates of sequential reads and writes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import scipy.sparse

from diskhop.budget import Budget, parse_bytes
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from turns import Turn, drop_from_page_cache, measure_disk, stage_clock, take_turn

MOST_SECONDS = 10.0
ALLOWED_OVERHEAD_BYTES = 150_000_000
MOST_GROWTH = 1.15
EDGES_PER_NODE = 20
_EDGES_PER_BLOCK = 1 << 22


def write_edges(folder: Path, num_edges: int) -> Path:
    """Write edge_index.npy (2, edges) int64, uniform over the nodes."""
    folder.mkdir()
    generator = np.random.default_rng(num_edges)
    with (folder / "edge_index.npy").open("wb") as file:
        header = {"descr": "<i8", "fortran_order": False, "shape": (2, num_edges)}
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(2):
            for start in range(0, num_edges, _EDGES_PER_BLOCK):
                count = min(_EDGES_PER_BLOCK, num_edges - start)
                file.write(generator.integers(num_edges // EDGES_PER_NODE, size=count).data)
    return folder


def import_edges(source: Path, dest: Path, threads: int, memory_bytes: int, stages: dict[str, float]) -> None:
    import_graph(
        source,
        dest,
        engine=open_engine("auto").engine,
        budget=Budget(memory_bytes),
        threads=threads,
        progress=stage_clock(stages),
    )


def convert_in_memory(source: Path, dest: Path, stages: dict[str, float]) -> None:
    """Sort the edges with SciPy, as one would without diskhop."""
    edge_index = np.load(source / "edge_index.npy")
    num_nodes = int(edge_index.max()) + 1
    ones = np.ones(edge_index.shape[1], np.int8)
    # Rows are destinations: csr's lists by row are the in-neighbours.
    lists = scipy.sparse.coo_array((ones, (edge_index[1], edge_index[0])), shape=(num_nodes, num_nodes))
    sorted_lists = lists.tocsr(copy=False)
    sorted_lists.sort_indices()
    dest.mkdir()
    np.save(dest / "indptr.npy", sorted_lists.indptr)
    np.save(dest / "indices.npy", sorted_lists.indices)


def turns_of(act: Callable[..., None], source: Path, repeats: int, *arguments: object) -> list[Turn]:
    turns = []
    for _ in range(repeats):
        drop_from_page_cache(source / "edge_index.npy")
        dest = source.with_suffix(".result")
        turns.append(take_turn(act, source, dest, *arguments))
        shutil.rmtree(dest)
    return turns


def show(name: str, num_edges: int, turns: list[Turn]) -> str:
    seconds = sorted(turn.seconds for turn in turns)
    return (
        f"{name:26}{statistics.median(seconds):7.2f} s ({seconds[0]:.2f}..{seconds[-1]:.2f})"
        f"{statistics.median(seconds) / num_edges * 1e9:7.1f} ns/edge"
        f"{max(turn.peak_rss_bytes for turn in turns) / 1e6:8,.0f} MB peak"
        f"{turns[-1].bytes_read / 1e9:7.2f} GB read{turns[-1].bytes_written / 1e9:7.2f} GB written"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=Path(), help="a folder on the disk to use; 33 bytes per edge")
    parser.add_argument("--edges", type=int, default=200_000_000)
    parser.add_argument("--small", type=int, default=100_000_000, help="edges, to measure how the time per edge grows")
    parser.add_argument("--large", type=int, default=800_000_000, help="edges, to measure the same; 0: not measured")
    parser.add_argument("--memory", default="512MB")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3, help="turns of each")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    arguments = parser.parse_args()
    memory_bytes = parse_bytes(arguments.memory)
    ours = (arguments.threads, memory_bytes)
    repeats: int = arguments.repeats

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    out(f"--memory {arguments.memory}, {arguments.threads} threads, {EDGES_PER_NODE} edges per node, int64")
    imports: dict[int, list[Turn]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="diskhop-bench-") as name:
        folder = Path(name)
        source = write_edges(folder / "edges", arguments.edges)
        disk = measure_disk(folder, source / "edge_index.npy")
        pairs = [
            (turns_of(import_edges, source, 1, *ours)[0], turns_of(convert_in_memory, source, 1)[0])
            for _ in range(repeats)
        ]
        imports[arguments.edges] = [mine for mine, _ in pairs]
        theirs = [other for _, other in pairs]
        out(show(f"import, {arguments.edges / 1e6:g} M edges", arguments.edges, imports[arguments.edges]))
        out(show("SciPy, in memory", arguments.edges, theirs))
        shutil.rmtree(source)
        for num_edges in filter(None, (arguments.small, arguments.large)) if arguments.large else ():
            source = write_edges(folder / "edges", num_edges)
            imports[num_edges] = turns_of(import_edges, source, repeats, *ours)
            shutil.rmtree(source)
            out(show(f"import, {num_edges / 1e6:g} M edges", num_edges, imports[num_edges]))
    seconds = {count: statistics.median(turn.seconds for turn in turns) for count, turns in imports.items()}
    ratios = [mine.seconds / other.seconds for mine, other in pairs]
    main_turns = imports[arguments.edges]
    out("each stage ended after: " + ", ".join(f"{stage} {at:.2f} s" for stage, at in main_turns[-1].stages.items()))
    out(
        f"{statistics.median(ratios):.2f} times SciPy's time ({min(ratios):.2f}..{max(ratios):.2f}), "
        f"{max(t.peak_rss_bytes for t in theirs) / max(t.peak_rss_bytes for t in main_turns):.0f} times less memory; "
        f"{seconds[arguments.edges] / disk.seconds(main_turns[-1]):.2f} times the disk alone "
        f"(reads {disk.read_rate / 1e9:.2f}, writes {disk.write_rate / 1e9:.2f} GB/s)"
    )
    peak_bytes = max(turn.peak_rss_bytes for turns in imports.values() for turn in turns)
    met = {
        f"{seconds[arguments.edges]:.2f} s, at most {MOST_SECONDS:g}": seconds[arguments.edges] <= MOST_SECONDS,
        f"peak {peak_bytes / 1e6:.0f} MB, at most {(memory_bytes + ALLOWED_OVERHEAD_BYTES) / 1e6:.0f}": peak_bytes
        <= memory_bytes + ALLOWED_OVERHEAD_BYTES,
    }
    if arguments.large:
        growth = (seconds[arguments.large] / arguments.large) / (seconds[arguments.small] / arguments.small)
        met[f"time per edge grows by {growth:.2f}, at most {MOST_GROWTH}"] = growth <= MOST_GROWTH
    for claim, is_met in met.items():
        out(f"{claim}: {'met' if is_met else 'MISSED'}")
    if arguments.json:
        document = {
            "benchmark": "csc",
            "cores": os.cpu_count(),
            "threads": arguments.threads,
            "memory_bytes": memory_bytes,
            "imports": {count: [asdict(turn) for turn in turns] for count, turns in imports.items()},
            "scipy": [asdict(turn) for turn in theirs],
            "disk": asdict(disk),
            "met": met,
        }
        print(json.dumps(document, indent=1))
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
