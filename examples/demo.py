"""The demo: a graph with 1.1 GB of features, trained from disk within a fraction of that.

    make demo     (or: python examples/demo.py [--folder FOLDER] [--nodes N])

The graph is a stochastic block model: planted classes, and features so noisy that on their own they tell little. How
much they tell at best is known exactly, so that the margin of a graph neural network over them can be seen.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table as TextTable
from rich.text import Text

import diskhop
from diskhop.budget import format_bytes
from diskhop.dataset.generate import GraphConfig, features_alone_accuracy, generate_graph
from diskhop.dataset.progress import Progress
from diskhop.io.engine import open_engine
from diskhop.stages import stage_progress
from diskhop.terminal import TerminalWatcher

NUM_NODES = 2_200_000
DIM = 128
NUM_CLASSES = 16
SIGNAL = 1.2
# Beyond topology and batches in flight: at most a quarter of the features.
CACHE_FRACTION = 0.25

console = Console(soft_wrap=True, highlight=False)


def device_bytes_read() -> int:
    """Bytes that this process has caused to be fetched from the disk (/proc/self/io)."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    return 0


def evict(folder: Path) -> None:
    """Drop the dataset's pages from the page cache, so that what is read comes from the disk."""
    for path in folder.rglob("*.bin"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def make_graph(path: Path, num_nodes: int, progress: Progress) -> float:
    """Generate the graph if it is not there; returns the seconds it took."""
    started = time.perf_counter()
    if not path.exists():
        config = GraphConfig(
            kind="sbm",
            num_nodes=num_nodes,
            num_edges=12 * num_nodes,
            dim=DIM,
            num_classes=NUM_CLASSES,
            homophily=0.7,
            signal=SIGNAL,
            train_fraction=0.01,
            eval_fraction=0.005,
            seed=1,
        )
        generate_graph(path, config, engine=open_engine("auto").engine, progress=progress)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("demo-data"))
    parser.add_argument("--nodes", type=int, default=NUM_NODES)
    arguments = parser.parse_args()
    graph, run = arguments.folder / "sbm", arguments.folder / "run"
    arguments.folder.mkdir(exist_ok=True)
    shutil.rmtree(run, ignore_errors=True)

    feature_bytes = arguments.nodes * DIM * 4
    console.print(f"A graph of {arguments.nodes:,} nodes with {format_bytes(feature_bytes)} of features, in {graph}")
    with stage_progress(console) as progress:
        generating_seconds = make_graph(graph, arguments.nodes, progress)
    dataset = diskhop.open_dataset(graph)
    topology_bytes = (dataset.num_nodes + 1) * 8 + dataset.num_edges * 4
    # Batches in flight are measured by the planner; four of this workload take about a tenth of the features.
    memory_bytes = topology_bytes + int(feature_bytes * CACHE_FRACTION)
    evict(graph)
    before_bytes = device_bytes_read()
    started = time.perf_counter()
    with TerminalWatcher(console) as watcher:
        trained = diskhop.train(
            dataset,
            model="sage",
            store="direct",
            fanout=(10, 5),
            eval_fanout=(10, 5),
            hidden=64,
            batch_size=1000,
            epochs=4,
            memory_bytes=memory_bytes,
            seed=0,
            out=run,
            watcher=watcher,
        )
    seconds = time.perf_counter() - started
    read_bytes = device_bytes_read() - before_bytes
    show(trained.result, dataset, feature_bytes, read_bytes, (generating_seconds, seconds), run)


def show(
    result: dict[str, object],
    dataset: diskhop.Dataset,
    feature_bytes: int,
    read_bytes: int,
    seconds: tuple[float, float],
    run: Path,
) -> None:
    """Print what was reached, what it took, and what to try next."""
    epochs = result["epochs"]
    plan = result["plan"]
    assert isinstance(epochs, list)
    assert isinstance(plan, dict)
    passes = [*epochs, *(epoch["validation"] for epoch in epochs), result["testing"]]
    names = ("rows_requested", "rows_hit", "bytes_needed", "bytes_read")
    totals = {name: sum(each[name] for each in passes) for name in names}
    rows = [
        ("test accuracy", f"{result['test']:.3f}"),
        ("features alone allow", f"{features_alone_accuracy(NUM_CLASSES, SIGNAL):.3f} at best"),
        ("budget (--memory)", f"{format_bytes(plan['memory_bytes'])} for {format_bytes(feature_bytes)} of features"),
        *((f"  {name}", format_bytes(num_bytes)) for name, num_bytes in plan["reserved"].items()),
        ("peak resident memory", format_bytes(int(str(result["peak_rss_bytes"])))),
        ("  of it overhead", format_bytes(int(str(result["overhead_bytes"])))),
        ("rows requested", f"{totals['rows_requested']:,}"),
        ("  from disk", f"{1 - totals['rows_hit'] / totals['rows_requested']:.0%}"),
        ("bytes of these rows", format_bytes(totals["bytes_needed"])),
        ("bytes read from disk", f"{format_bytes(read_bytes)}, gaps between rows included where skipping costs more"),
        ("seconds", f"{seconds[0]:.0f} generating, {seconds[1]:.0f} training"),
    ]
    table = TextTable(show_header=False, box=None)
    for name, text in rows:
        table.add_row(Text(name), Text(text))
    console.print(table)
    console.print(
        f"Next: diskhop inspect {dataset.path}; diskhop train {dataset.path} --store mapped --epochs 1; "
        f"diskhop train {dataset.path} --model gat --epochs 1; look at {run}/result.json"
    )


if __name__ == "__main__":
    try:
        main()
    except diskhop.DiskhopError as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        sys.exit("demo: interrupted; run it again to start over")
