"""An update by a delta of 1 % of workload W's edges, compared with an import of the whole.

Claim: an update takes at most a tenth of the import's seconds. The graph is drawn as W is (R-MAT, hot order, 128
features), written as NumPy arrays for the import, and its delta as Parquet. Each turn is a process of its own. An
update reads and writes all edge lists once, so that a copy of their files, which is measured too, bounds it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from diskhop.budget import Budget
from diskhop.generating import GraphConfig, generate_graph
from diskhop.importing.options import ImportOptions
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from diskhop.system.transfers import transfers
from diskhop.updating.run import update_dataset
from turns import peak_rss_bytes

MOST_RATIO = 0.1
NUM_NODES, NUM_EDGES, DIM = 4_000_000, 60_000_000, 128
QUICK_SHARE = 60
_MEMORY_BYTES = 2_000_000_000
_TURNS = ("import", "copy", "update")


def prepare(folder: Path, share: int) -> None:
    """Write a graph of 1/share of W as arrays, and a delta of 1 % of its edges."""
    config = GraphConfig(kind="kronecker", num_nodes=NUM_NODES // share, num_edges=NUM_EDGES // share, dim=0, seed=1)
    dataset = generate_graph(folder / "drawn", config, engine=open_engine().engine, budget=Budget(_MEMORY_BYTES))
    files = dataset.topology
    starts = np.fromfile(files.indptr_path, np.int64)
    sources = np.fromfile(files.indices_path, files.index_dtype).astype(np.int64)
    destinations = np.repeat(np.arange(files.num_nodes), np.diff(starts))
    order = np.random.default_rng(0).permutation(len(sources))
    (folder / "source").mkdir()
    np.save(folder / "source" / "edge_index.npy", np.stack([sources, destinations])[:, order])
    features = np.lib.format.open_memmap(
        folder / "source" / "x.npy", mode="w+", dtype=np.float32, shape=(files.num_nodes, DIM)
    )
    generator = np.random.default_rng(1)
    for first in range(0, files.num_nodes, 1 << 16):
        block = features[first : first + (1 << 16)]
        block[:] = generator.random(block.shape, np.float32)
    features.flush()
    chosen = order[: len(sources) // 100]
    added = {"source": sources[chosen], "target": generator.permutation(destinations[chosen])}
    pq.write_table(pa.table(added), folder / "edges.parquet")
    shutil.rmtree(folder / "drawn")


def run_turn(kind: str, folder: Path) -> None:
    """Do one of both, and print its seconds, bytes and peak memory."""
    engine, budget = open_engine().engine, Budget(_MEMORY_BYTES)
    begin = time.perf_counter()
    if kind == "import":
        import_graph(
            folder / "source", folder / "graph", options=ImportOptions(order="hot"), engine=engine, budget=budget
        )
    elif kind == "copy":
        copy_lists(folder / "graph")
    else:
        update_dataset(
            folder / "graph",
            folder / "edges.parquet",
            options=ImportOptions(undirected=False),
            engine=engine,
            budget=budget,
        )
    seconds = time.perf_counter() - begin
    read, written = transfers().call_bytes_read, transfers().call_bytes_written
    print(json.dumps({"seconds": seconds, "read": read, "written": written, "peak": peak_rss_bytes()}))


def copy_lists(dataset: Path) -> None:
    """Copy the files of all edges, and wait until they are on the disk."""
    with tempfile.TemporaryDirectory(dir=dataset.parent) as name:
        for path in sorted((dataset / "edges").rglob("*.bin")):
            with path.open("rb") as source, (Path(name) / path.name).open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
                os.fsync(copy.fileno())


def take_turn(kind: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--turn", kind, "--dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{kind} failed: {done.stderr[-2000:]}")
    turn: dict[str, Any] = json.loads(done.stdout)
    return turn


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=Path(), help="a folder on the disk to use: 8 GB")
    parser.add_argument("--quick", action="store_true", help=f"a graph of 1/{QUICK_SHARE} of the size")
    parser.add_argument("--turn", choices=_TURNS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.turn:
        run_turn(arguments.turn, arguments.dir)
        return 0
    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="diskhop-bench-") as name:
        folder = Path(name)
        print("drawing the graph and its delta ...", flush=True)
        prepare(folder, QUICK_SHARE if arguments.quick else 1)
        results = {}
        for kind in _TURNS:
            print(f"{kind} ...", flush=True)
            results[kind] = take_turn(kind, folder)
    for kind, turn in results.items():
        print(
            f"{kind:8}{turn['seconds']:8.2f} s{turn['read'] / 1e6:10,.0f} MB read{turn['written'] / 1e6:10,.0f} MB "
            f"written{turn['peak'] / 1e6:8,.0f} MB peak"
        )
    ratio = results["update"]["seconds"] / results["import"]["seconds"]
    is_met = ratio <= MOST_RATIO
    bound = results["copy"]["seconds"] / results["import"]["seconds"]
    print(
        f"an update takes {ratio:.3f} of the import's seconds, at most {MOST_RATIO}: {'met' if is_met else 'MISSED'}; "
        f"a copy of the edge lists takes {bound:.3f}"
    )
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
