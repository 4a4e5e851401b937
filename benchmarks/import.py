"""Edges from .npy to sorted lists on disk, compared with DuckDB's ORDER BY; and more than 2^31 edges, in one run.

Claims (issue 7): 200 M edges import at least 5 times as fast as DuckDB sorts the same pairs, each in a memory control
group of 1 GB, page cache included; the import's peak resident memory is at most the budget + 150 MB. More than 2.2
billion edges, drawn as they are read (no file), become a dataset within the same cap. Turns alternate; each runs in its
own process on a source that is not in the page cache. DuckDB reads the pairs from a Parquet file, which is made before,
untimed, and writes the sorted pairs as Parquet.
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

import duckdb
import numpy as np

from cgroups import run_limited, why_no_limit
from diskhop.budget import Budget, parse_bytes
from diskhop.dataset.dataset import open_dataset
from diskhop.generating import GraphConfig, generate_graph
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from diskhop.system.transfers import transfers
from turns import peak_rss_bytes, stage_clock

LEAST_RATIO = 5.0
ALLOWED_OVERHEAD_BYTES = 150_000_000
CAP_BYTES = 1_000_000_000
# Share of the cap that DuckDB may use: it takes more memory than its limit.
DUCKDB_SHARE = 0.8
EDGES_PER_NODE = 20
MANY_EDGES = 2_250_000_000
_EDGES_PER_BLOCK = 1 << 22


class Turn(NamedTuple):
    """Costs of one process; bytes are those read from and written to the disk."""

    seconds: float
    peak_rss_bytes: int
    bytes_read: int
    bytes_written: int
    stages: dict[str, float]
    num_edges: int


def import_edges(folder: Path, memory_bytes: int, stages: dict[str, float]) -> int:
    dataset = import_graph(
        folder / "edges",
        folder / "graph",
        engine=open_engine().engine,
        budget=Budget(memory_bytes),
        progress=stage_clock(stages),
    )
    return dataset.num_edges


def generate_edges(folder: Path, memory_bytes: int, stages: dict[str, float]) -> int:
    num_edges = int((folder / "many").read_text())
    config = GraphConfig(
        kind="uniform", num_nodes=num_edges // EDGES_PER_NODE, num_edges=num_edges, dim=0, num_classes=0, seed=1
    )
    dataset = generate_graph(
        folder / "graph",
        config,
        engine=open_engine().engine,
        budget=Budget(memory_bytes),
        progress=stage_clock(stages),
    )
    indptr = np.memmap(dataset.topology.indptr_path, np.int64, "r")
    assert indptr[-1] == num_edges, "the last list ends with the last edge"
    assert open_dataset(dataset.path).num_edges == num_edges
    return dataset.num_edges


def order_by(folder: Path, _memory_bytes: int, _stages: dict[str, float]) -> int:
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{int(CAP_BYTES * DUCKDB_SHARE)}B",
        "threads": len(os.sched_getaffinity(0)),
        "temp_directory": str(folder / "spill"),
        "preserve_insertion_order": False,
    }
    with duckdb.connect(config=config) as connection:
        connection.execute("SET enable_progress_bar = false")
        pairs = f"SELECT * FROM read_parquet('{folder / 'pairs.parquet'}') ORDER BY destination, source"
        connection.execute(f"COPY ({pairs}) TO '{folder / 'sorted.parquet'}' (FORMAT parquet)")
        return int(connection.sql(f"SELECT count(*) FROM read_parquet('{folder / 'sorted.parquet'}')").fetchall()[0][0])


WORK = {"import": import_edges, "duckdb": order_by, "generate": generate_edges}


def write_edges(folder: Path, num_edges: int) -> None:
    """Write edges/edge_index.npy (2, edges) int64, uniform over the nodes, and the same pairs to pairs.parquet."""
    (folder / "edges").mkdir()
    path = folder / "edges" / "edge_index.npy"
    generator = np.random.default_rng(num_edges)
    with path.open("wb") as file:
        header = {"descr": "<i8", "fortran_order": False, "shape": (2, num_edges)}
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(2):
            for start in range(0, num_edges, _EDGES_PER_BLOCK):
                count = min(_EDGES_PER_BLOCK, num_edges - start)
                file.write(generator.integers(num_edges // EDGES_PER_NODE, size=count).data)
    edge_index = np.load(path, mmap_mode="r")
    with duckdb.connect(config={"temp_directory": str(folder / "spill")}) as connection:
        connection.execute("SET enable_progress_bar = false")
        for number, start in enumerate(range(0, num_edges, 8 * _EDGES_PER_BLOCK)):
            source, destination = edge_index[:, start : start + 8 * _EDGES_PER_BLOCK]
            connection.register("block", {"source": np.array(source), "destination": np.array(destination)})
            part = folder / f"part-{number:04}.parquet"
            connection.execute(f"COPY (SELECT * FROM block) TO '{part}' (FORMAT parquet)")
        parts = f"read_parquet('{folder}/part-*.parquet')"
        connection.execute(f"COPY (SELECT * FROM {parts}) TO '{folder / 'pairs.parquet'}' (FORMAT parquet)")
    for part in folder.glob("part-*.parquet"):
        part.unlink()


def take_turn(kind: str, folder: Path, memory_bytes: int, cap_bytes: int | None) -> Turn:
    """Run one turn in its own process, and remove its result."""
    for path in (folder / "edges" / "edge_index.npy", folder / "pairs.parquet"):
        if path.exists():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    command = [sys.executable, __file__, "--turn", kind, "--dir", str(folder), "--memory", str(memory_bytes)]
    done = run_limited(command, cap_bytes)
    if done.returncode != 0:
        sys.exit(f"{kind} failed with {done.returncode}: {done.errors[-2000:]}")
    shutil.rmtree(folder / "graph", ignore_errors=True)
    shutil.rmtree(folder / "spill", ignore_errors=True)
    (folder / "sorted.parquet").unlink(missing_ok=True)
    return Turn(*json.loads(done.output))


def run_turn(kind: str, folder: Path, memory_bytes: int) -> None:
    stages: dict[str, float] = {}
    begin = time.perf_counter()
    num_edges = WORK[kind](folder, memory_bytes, stages)
    seconds = time.perf_counter() - begin
    moved = transfers()
    print(json.dumps(Turn(seconds, peak_rss_bytes(), moved.bytes_read, moved.bytes_written, stages, num_edges)))


def show(name: str, turns: list[Turn]) -> str:
    seconds = sorted(turn.seconds for turn in turns)
    last = turns[-1]
    return (
        f"{name:28}{statistics.median(seconds):8.2f} s ({seconds[0]:.2f}..{seconds[-1]:.2f})"
        f"{statistics.median(seconds) / last.num_edges * 1e9:7.1f} ns/edge"
        f"{max(turn.peak_rss_bytes for turn in turns) / 1e6:8,.0f} MB peak"
        f"{last.bytes_read / 1e9:7.2f} GB read{last.bytes_written / 1e9:7.2f} GB written"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=Path(), help="a folder on the disk to use: 60 bytes per edge")
    parser.add_argument("--edges", type=int, default=200_000_000)
    parser.add_argument("--many", type=int, default=MANY_EDGES, help="edges that are generated; 0: not measured")
    parser.add_argument("--memory", default="800MB")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    parser.add_argument("--turn", choices=list(WORK), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.turn:
        run_turn(arguments.turn, arguments.dir, int(arguments.memory))
        return 0
    memory_bytes = parse_bytes(arguments.memory)
    obstacle = why_no_limit()
    cap_bytes = None if obstacle else CAP_BYTES

    def out(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    out(f"--memory {arguments.memory}; {f'NO cap ({obstacle})' if obstacle else 'cap 1 GB, page cache included'}")
    turns: dict[str, list[Turn]] = {"import": [], "duckdb": []}
    claims: dict[str, bool] = {}
    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="diskhop-bench-") as name:
        folder = Path(name)
        write_edges(folder, arguments.edges)
        for _ in range(arguments.repeats):
            for kind, each in turns.items():
                each.append(take_turn(kind, folder, memory_bytes, cap_bytes))
        out(show(f"import, {arguments.edges / 1e6:g} M edges", turns["import"]))
        out(show("DuckDB, ORDER BY", turns["duckdb"]))
        shutil.rmtree(folder / "edges")
        (folder / "pairs.parquet").unlink()
        ratios = sorted(theirs.seconds / ours.seconds for ours, theirs in zip(*turns.values(), strict=True))
        ratio = statistics.median(ratios)
        text = f"{ratio:.1f} times as fast ({ratios[0]:.1f}..{ratios[-1]:.1f}), at least {LEAST_RATIO:g}"
        claims[text] = ratio >= LEAST_RATIO
        if arguments.many:
            (folder / "many").write_text(str(arguments.many))
            turns["generate"] = [take_turn("generate", folder, memory_bytes, cap_bytes)]
            out(show(f"generated, {arguments.many / 1e6:g} M edges", turns["generate"]))
            many = turns["generate"][0].num_edges
            claims[f"{many:,} edges, more than 2.2 billion"] = many > 2_200_000_000
    ours = [turn for kind, each in turns.items() if kind != "duckdb" for turn in each]
    peak_bytes, most_bytes = max(turn.peak_rss_bytes for turn in ours), memory_bytes + ALLOWED_OVERHEAD_BYTES
    claims[f"peak {peak_bytes / 1e6:.0f} MB, at most {most_bytes / 1e6:.0f}"] = peak_bytes <= most_bytes
    stages = ", ".join(f"{stage} {at:.2f} s" for stage, at in turns["import"][-1].stages.items())
    out(f"each stage of the import ended after: {stages}")
    for claim, is_met in claims.items():
        out(f"{claim}: {'met' if is_met else 'MISSED'}")
    if arguments.json:
        document: dict[str, Any] = {"benchmark": "import", "memory_bytes": memory_bytes, "claims": claims}
        document["turns"] = {kind: [turn._asdict() for turn in each] for kind, each in turns.items()}
        print(json.dumps(document, indent=1))
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
