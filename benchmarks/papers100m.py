"""A graph of the shape of papers100M: how soon a run has its first batch, and what it reads before that.

    python benchmarks/papers100m.py [--scale 1.0] [--memory 14GB 5GB] [--batches 60]

Claims (issue 46), at --scale 1 (111 M nodes, 1.6 B edges, 128 float16 columns): the first batch within 30 s and the
reading of what stays in memory, planning reads less than 500 MB of neighbour lists, a line at least every 10 s until
then. Each run has its own process, and the files are evicted before. With --scale, nodes, edges and --memory are
multiplied.

Columns: seconds and bytes read by the process until the plan is made and until the first batch is done; where lists
are, and the store; seconds of a training batch, the epoch's share of waiting, and the bytes it reads; seconds of a
validation of --valid nodes; peak resident memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from diskhop.budget import format_bytes, parse_bytes
from diskhop.dataset.dataset import open_dataset
from diskhop.generating import GraphConfig
from diskhop.runs.callbacks import BatchProgress, Callback
from diskhop.runs.start import train
from diskhop.system.transfers import transfers
from papers import find_graph, print_table
from turns import peak_rss_bytes
from workloads import DEFAULT_FOLDER, evict

NUM_NODES, NUM_EDGES, DIM = 111_059_956, 1_615_685_872, 128
FANOUT = (15, 10, 5)
# Of the 1.2 M training nodes.
TRAIN_FRACTION = 0.0109


class Clock(Callback):
    """Notes seconds and bytes read until the plan, and until the first batch is done."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.found: dict[str, float] = {}

    def planned(self, plan: Any) -> None:
        """See Callback."""
        self._note("plan")

    def batch_done(self, progress: BatchProgress) -> None:
        """See Callback."""
        if "first_seconds" not in self.found:
            self._note("first")
        if progress.batch == progress.num_batches and progress.stage in ("train", "valid"):
            self._note(progress.stage)

    def _note(self, name: str) -> None:
        self.found[f"{name}_seconds"] = time.perf_counter() - self._began
        self.found[f"{name}_bytes"] = transfers().bytes_read


def run(path: Path, memory_bytes: int, num_batches: int) -> dict[str, Any]:
    """Train an epoch of a few batches in this process, with validation."""
    clock = Clock()
    result = train(
        path,
        model="sage",
        hidden=256,
        fanout=FANOUT,
        max_batches=num_batches,
        epochs=1,
        memory=memory_bytes,
        seed=0,
        callbacks=[clock],
    ).result
    epoch, plan = result["epochs"][0], result["plan"]
    return {
        **clock.found,
        "plan": plan,
        "epoch": epoch,
        "peak": peak_rss_bytes(),
        "overhead": result["overhead_bytes"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="folder of the graph, generated if missing")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--memory", nargs="*", default=["14GB", "5GB"], help="at scale 1")
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--valid", type=int, default=20_000, help="nodes of validation, at any scale")
    parser.add_argument("--json", action="store_true", help="a JSON line for each run on stdout, the table on stderr")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        path, memory = arguments.run
        print(json.dumps(run(Path(path), int(memory), arguments.batches)))
        return 0
    num_nodes = int(NUM_NODES * arguments.scale)
    config = GraphConfig(
        kind="kronecker",
        num_nodes=num_nodes,
        num_edges=int(NUM_EDGES * arguments.scale),
        dim=DIM,
        dtype="float16",
        num_classes=172,
        train_fraction=TRAIN_FRACTION,
        eval_fraction=arguments.valid / num_nodes,
        order="hot",
        seed=1,
    )
    path = find_graph(arguments.dir / f"papers100m-{arguments.scale:g}", config).path
    heads = ["plan s", "GB read", "first batch s", "GB read", "lists", "store", "s a batch", "waiting", "epoch GB"]
    rows: dict[str, list[str]] = {}
    for memory in arguments.memory:
        memory_bytes = int(parse_bytes(memory) * arguments.scale)
        evict(open_dataset(path))
        command = [sys.executable, __file__, "--run", str(path), str(memory_bytes), "--batches", str(arguments.batches)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.exit(f"--memory {format_bytes(memory_bytes)}: failed")
        found = json.loads(done.stdout.splitlines()[-1])
        if arguments.json:
            print(json.dumps(found), flush=True)
        epoch, plan = found["epoch"], found["plan"]
        rows[format_bytes(memory_bytes)] = [
            f"{found['plan_seconds']:.1f}",
            f"{found['plan_bytes'] / 1e9:.2f}",
            f"{found['first_seconds']:.1f}",
            f"{found['first_bytes'] / 1e9:.2f}",
            plan["topology"],
            plan["store"],
            f"{epoch['seconds'] / arguments.batches:.2f}",
            f"{epoch['stall_seconds'] / epoch['seconds']:.0%}",
            f"{epoch['bytes_read'] / 1e9:.1f}",
            f"{found['valid_seconds'] - found['train_seconds']:.1f}",
            format_bytes(found["peak"]),
        ]
        print_table(
            lambda line: print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True),
            [*heads, "validation s", "peak"],
            rows,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
