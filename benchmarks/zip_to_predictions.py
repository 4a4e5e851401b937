"""papers100M as OGB ships it, from the archive to predictions of all nodes, within three sizes of memory.

    python benchmarks/zip_to_predictions.py [--scale 0.25] [--memory 16GB 8GB 5GB]

A folder of OGB's layout is written (ogb.py) with R-MAT edges. Then `diskhop` imports it undirected in hot order, plans,
trains SAGE for an epoch with validation, and predicts every node: a process for each step, with no memory option, in a
control group that its page cache counts in, with files evicted before. --memory is that of the machine at scale 1. What
a process needs whatever the graph does not shrink with it: only what is beyond 1.5 GB is scaled.

Columns: seconds; bytes read from and written to the disk; peak resident memory; what the step found.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from cgroups import run_limited, why_no_limit
from diskhop.budget import format_bytes, parse_bytes
from diskhop.generating import GraphConfig
from diskhop.generating.edges import generated_edges
from ogb import DIM, NUM_EDGES, NUM_NODES, files_of, write_source
from papers import print_table
from turns import drop_from_page_cache
from workloads import DEFAULT_FOLDER

PROCESS_BYTES = 1_500_000_000
HEADS = ["s", "GB read", "GB written", "peak", ""]
_BLOCK_BYTES = 512


class Step(NamedTuple):
    """A command of diskhop. remark: from its JSON document and seconds, what to say about it."""

    name: str
    options: list[str]
    remark: Callable[[dict[str, Any]], str]


def steps(source: Path, folder: Path, batches: int | None) -> list[Step]:
    """Return the steps. batches: of the epoch; None for all."""
    graph, run = str(folder / "graph"), str(folder / "run")
    model = ["--model", "sage", "--hidden", "256", "--fanout", "15,10,5", "--batch-size", "1000"]
    limit = [] if batches is None else ["--max-batches", str(batches)]
    layout = ["--dtype", "float16", "--order", "hot", "--undirected", "--edge-ids", "drop"]
    return [
        Step("import", ["import", str(source), graph, *layout], lambda _: ""),
        Step("plan", ["plan", graph, *model], _planned),
        Step("train", ["train", graph, *model, "--epochs", "1", *limit, "--out", run], _trained),
        Step("predict", ["predict", run, "--what", "class", "--out", str(folder / "classes")], lambda _: ""),
    ]


def _planned(found: dict[str, Any]) -> str:
    best = found["options"][0]
    plan, seconds = best["plan"], best["predicted"]["epoch_seconds"]
    return f"{plan['store']}, lists {plan['topology']}; {seconds:.0f} s an epoch predicted"


def _trained(found: dict[str, Any]) -> str:
    epoch = found["epochs"][0]
    return (
        f"{epoch['seconds']:.0f} s training, {epoch['stall_seconds'] / epoch['seconds']:.0%} waiting, "
        f"{epoch['bytes_read'] / 1e9:.1f} GB; {found['plan']['store']}"
    )


def measured(command: list[str]) -> int:
    """Run a command, print its output and then a line of what it took. Return its exit code."""
    begin = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = {
        "seconds": time.perf_counter() - begin,
        "read": used.ru_inblock * _BLOCK_BYTES,
        "written": used.ru_oublock * _BLOCK_BYTES,
        "peak": used.ru_maxrss * 1024,
    }
    print(done.stdout)
    print(json.dumps(took))
    return done.returncode


def take(step: Step, limit_bytes: int | None, folders: list[Path]) -> list[str]:
    """Take a step in a process of its own; return the row for it, or only the reason why it failed.

    folders: whose files are evicted before.
    """
    for path in (path for folder in folders for path in files_of(folder)):
        drop_from_page_cache(path)
    command = [sys.executable, "-m", "diskhop", *step.options, "--json"]
    done = run_limited([sys.executable, __file__, "--measure", *command], limit_bytes)
    if done.returncode:
        return [f"exit code {done.returncode}: {' '.join(done.errors.split())[-500:]}"]
    document, _, last = done.output.strip().rpartition("\n")
    took = json.loads(last)
    remark = step.remark(json.loads(document))
    amounts = [f"{took['seconds']:.0f}", f"{took['read'] / 1e9:.1f}", f"{took['written'] / 1e9:.1f}"]
    return [*amounts, format_bytes(took["peak"]), remark]


def main() -> int:
    if sys.argv[1:2] == ["--measure"]:
        return measured(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="folder for all files, 260 GB times the scale")
    parser.add_argument("--scale", type=float, default=0.25)
    parser.add_argument("--memory", nargs="*", default=["16GB", "8GB", "5GB"], help="of the machine, at scale 1")
    parser.add_argument("--batches", type=int, help="batches of the epoch; all by default")
    arguments = parser.parse_args()
    if reason := why_no_limit():
        print(f"no control groups, memory is not limited: {reason}", file=sys.stderr)
    folder = arguments.dir / f"zip-{arguments.scale:g}"
    source = folder / "papers"
    num_nodes, num_edges = int(NUM_NODES * arguments.scale), int(NUM_EDGES * arguments.scale)
    if not source.exists():
        print(f"making {source}", file=sys.stderr, flush=True)
        config = GraphConfig(kind="kronecker", num_nodes=num_nodes, num_edges=num_edges, dim=DIM, seed=1)
        write_source(folder / "papers.part", arguments.scale, 1, generated_edges(config))
        (folder / "papers.part").rename(source)
    print(f"{num_nodes / 1e6:.1f} M nodes, {num_edges / 1e6:.1f} M edges, {DIM} columns, scale {arguments.scale:g}")
    rows: dict[str, list[str]] = {}
    for memory in arguments.memory:
        limit = int(PROCESS_BYTES + (parse_bytes(memory) - PROCESS_BYTES) * arguments.scale)
        place = folder / memory
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for step in steps(source, place, arguments.batches):
            row = take(step, None if reason else limit, [source, place])
            rows[f"{memory} ({format_bytes(limit)}), {step.name}"] = row
            print(f"{memory}, {step.name}: {', '.join(row)}", file=sys.stderr, flush=True)
            if len(row) < len(HEADS):
                break
        shutil.rmtree(place)
    print_table(print, HEADS, rows)
    return int(any(len(row) < len(HEADS) for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
