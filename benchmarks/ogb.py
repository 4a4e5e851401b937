"""Importing a folder of OGB's binary layout in ogbn-papers100M's proportions, at a scale and at a quarter of it.

Claims (issue 7): peak resident memory is at most the budget + 150 MB, and seconds per byte of the source are at most
1.15 times larger at the whole scale. At scale 1 there are 111,059,956 nodes with 128 float32 features, 1,615,685,872
edges, and classes for 1.4 %: 57 GB, and 26 GB more, before deflate. Each import runs in its own process, on a source
that is not in the page cache. The disk alone: the time for the bytes that the import moved, at the rates of sequential
reads and writes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.budget import Budget, parse_bytes
from diskhop.dataset.edges import EdgeSource
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from diskhop.runtime.blocks import row_ranges
from turns import Disk, Turn, drop_from_page_cache, measure_disk, stage_clock, take_turn

NUM_NODES, NUM_EDGES, DIM, NUM_CLASSES = 111_059_956, 1_615_685_872, 128, 172
SPLITS = {"train": 1_207_179, "valid": 125_265, "test": 214_338}
MOST_GROWTH = 1.15
ALLOWED_OVERHEAD_BYTES = 150_000_000
_ITEMS_PER_BLOCK = 1 << 20

Draw = Callable[[int, int], NDArray[Any]]


def write_source(folder: Path, scale: float, level: int, edges: EdgeSource | None = None) -> Path:
    """Write the source at a scale, with members deflated in blocks as numpy.savez_compressed does.

    edges: as many as papers100M has at that scale; drawn uniformly by default.
    """
    num_nodes, num_edges = int(NUM_NODES * scale), int(NUM_EDGES * scale)
    generator = np.random.default_rng(0)
    counts = {part: max(1, int(count * scale)) for part, count in SPLITS.items()}
    chosen = generator.choice(num_nodes, sum(counts.values()), replace=False)
    raw, split = folder / "raw", folder / "split" / "time"
    raw.mkdir(parents=True)
    split.mkdir(parents=True)

    def features(start: int, stop: int) -> NDArray[Any]:
        return generator.standard_normal(stop - start, np.float32)

    def ids(start: int, stop: int) -> NDArray[Any]:
        if edges is None:
            return generator.integers(num_nodes, size=stop - start)
        # All sources, then all destinations.
        parts = ((0, start, min(stop, num_edges)), (1, max(start - num_edges, 0), stop - num_edges))
        return np.concatenate([edges.read(first, end - first)[row] for row, first, end in parts if first < end])

    def years(start: int, stop: int) -> NDArray[Any]:
        return generator.integers(1990, 2020, size=stop - start)

    labels = np.full(num_nodes, np.nan, np.float32)
    labels[chosen] = np.arange(len(chosen)) % NUM_CLASSES

    with zipfile.ZipFile(raw / "data.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        write_member(archive, "edge_index", "<i8", (2, num_edges), ids)
        write_member(archive, "num_nodes_list", "<i8", (1,), lambda _start, _stop: np.array([num_nodes]))
        write_member(archive, "num_edges_list", "<i8", (1,), lambda _start, _stop: np.array([num_edges]))
        write_member(archive, "node_feat", "<f4", (num_nodes, DIM), features)
        write_member(archive, "node_year", "<i8", (num_nodes, 1), years)
    with zipfile.ZipFile(raw / "node-label.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        write_member(archive, "node_label", "<f4", (num_nodes, 1), lambda start, stop: labels[start:stop])
    begin = 0
    for part, count in counts.items():
        lines = "\n".join(map(str, np.sort(chosen[begin : begin + count]).tolist()))
        (split / f"{part}.csv.gz").write_bytes(gzip.compress(f"{lines}\n".encode(), level))
        begin += count
    return folder


def write_member(archive: zipfile.ZipFile, name: str, descr: str, shape: tuple[int, ...], draw: Draw) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, {"descr": descr, "fortran_order": False, "shape": shape})
        for start, stop in row_ranges(int(np.prod(shape)), _ITEMS_PER_BLOCK):
            member.write(draw(start, stop).astype(descr, copy=False).data)


def files_of(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def import_folder(source: Path, dest: Path, threads: int, memory_bytes: int, stages: dict[str, float]) -> None:
    import_graph(
        source,
        dest,
        engine=open_engine("auto").engine,
        budget=Budget(memory_bytes),
        threads=threads,
        progress=stage_clock(stages),
    )


def import_turns(source: Path, repeats: int, threads: int, memory_bytes: int) -> list[Turn]:
    turns = []
    dest = source.with_suffix(".result")
    for _ in range(repeats):
        for path in files_of(source):
            drop_from_page_cache(path)
        turns.append(take_turn(import_folder, source, dest, threads, memory_bytes))
        shutil.rmtree(dest)
    return turns


def stage_seconds(stages: dict[str, float]) -> dict[str, float]:
    """Return the seconds of each stage, from the end of the one before."""
    ends = sorted(stages.items(), key=lambda item: item[1])
    begins = [0.0, *(end for _, end in ends)]
    return {name: end - begin for (name, end), begin in zip(ends, begins, strict=False)}


def show(scale: float, source_bytes: int, turns: list[Turn], disk: Disk) -> list[str]:
    seconds = sorted(turn.seconds for turn in turns)
    last = turns[-1]
    stages = ", ".join(f"{name} {taken:.1f} s" for name, taken in stage_seconds(last.stages).items())
    return [
        f"scale {scale:.4g}: {NUM_NODES * scale / 1e6:,.1f} M nodes, {NUM_EDGES * scale / 1e6:,.1f} M edges, "
        f"{source_bytes / 1e9:.2f} GB: {statistics.median(seconds):.1f} s ({seconds[0]:.1f}..{seconds[-1]:.1f}), "
        f"{statistics.median(seconds) / source_bytes * 1e9:.2f} s/GB",
        f"  {stages}, the rest {last.seconds - max(last.stages.values()):.1f} s",
        f"  peak {max(turn.peak_rss_bytes for turn in turns) / 1e6:,.0f} MB, {last.bytes_read / 1e9:.2f} GB read, "
        f"{last.bytes_written / 1e9:.2f} GB written: {last.seconds / disk.seconds(last):.1f} times the disk alone "
        f"(reads {disk.read_rate / 1e9:.2f}, writes {disk.write_rate / 1e9:.2f} GB/s)",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=Path(), help="a folder on the disk to use; 200 GB times the scale")
    parser.add_argument("--scale", type=float, default=1 / 64, help="size relative to papers100M")
    parser.add_argument("--memory", default="512MB")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=1, help="turns at each scale")
    parser.add_argument("--level", type=int, default=1, help="level of deflate, 1 to 9; numpy uses 6")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    arguments = parser.parse_args()
    memory_bytes = parse_bytes(arguments.memory)

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    out(f"--memory {arguments.memory}, {arguments.threads} threads, deflate {arguments.level}")
    imports: dict[float, list[Turn]] = {}
    source_bytes: dict[float, int] = {}
    seconds_per_byte: dict[float, float] = {}
    large: float = arguments.scale
    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="diskhop-bench-") as name:
        for scale in (large / 4, large):
            begin = time.perf_counter()
            source = write_source(Path(name) / "papers", scale, arguments.level)
            source_bytes[scale] = sum(path.stat().st_size for path in files_of(source))
            out(f"wrote the source in {time.perf_counter() - begin:.0f} s")
            drop_from_page_cache(source / "raw" / "data.npz")
            disk = measure_disk(Path(name), source / "raw" / "data.npz")
            imports[scale] = turns = import_turns(source, arguments.repeats, arguments.threads, memory_bytes)
            seconds_per_byte[scale] = statistics.median(turn.seconds for turn in turns) / source_bytes[scale]
            for line in show(scale, source_bytes[scale], turns, disk):
                out(line)
            shutil.rmtree(source)
    growth = seconds_per_byte[large] / seconds_per_byte[large / 4]
    peak_bytes = max(turn.peak_rss_bytes for turns in imports.values() for turn in turns)
    most_bytes = memory_bytes + ALLOWED_OVERHEAD_BYTES
    met = {
        f"time a byte grows by {growth:.2f}, at most {MOST_GROWTH}": growth <= MOST_GROWTH,
        f"peak {peak_bytes / 1e6:.0f} MB, at most {most_bytes / 1e6:.0f}": peak_bytes <= most_bytes,
    }
    for claim, is_met in met.items():
        out(f"{claim}: {'met' if is_met else 'MISSED'}")
    if arguments.json:
        document = {
            "benchmark": "ogb",
            "cores": os.cpu_count(),
            "threads": arguments.threads,
            "memory_bytes": memory_bytes,
            "source_bytes": source_bytes,
            "imports": {scale: [asdict(turn) for turn in turns] for scale, turns in imports.items()},
            "disk": asdict(disk),
            "met": met,
        }
        print(json.dumps(document, indent=1))
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
