"""The demo: a graph with 1.1 GB of features, trained from disk within a fraction of that, by sampling and by hops.

    make demo     (or: python examples/demo.py [--folder FOLDER] [--nodes N])

The graph is a stochastic block model: planted classes, and features so noisy that they alone hardly identify a class.
Their best possible accuracy is known exactly, which shows the margin of a graph neural network over them. SAGE samples
neighbours for every batch; SIGN aggregates its hops once, and then reads rows.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table as TextTable
from rich.text import Text

import diskhop
from diskhop.budget import format_bytes
from diskhop.generating import GraphConfig, features_alone_accuracy, generate_graph
from diskhop.io.engine import open_engine
from diskhop.runtime.progress import Progress
from diskhop.system.transfers import transfers
from diskhop.ui.progress import stage_progress
from diskhop.ui.terminal import TerminalCallback

NUM_NODES = 2_200_000
DIM = 128
NUM_CLASSES = 16
SIGNAL = 1.2
# Memory beyond topology and batches in flight: at most a quarter of the features.
CACHE_FRACTION = 0.25
SAMPLING = {"model": "sage", "store": "direct", "fanout": (10, 5), "eval_fanout": (10, 5)}
HOPS = {"model": "sign", "hops": 2, "layers": 1, "placement": "disk", "dtype": "float16"}


class Run(NamedTuple):
    """A run. result: as in result.json. seconds: of the whole run. read_bytes: read from the disk (kernel)."""

    result: dict[str, Any]
    seconds: float
    read_bytes: int

    @property
    def epoch_seconds(self) -> float:
        """Mean seconds per epoch of training."""
        epochs = self.result["epochs"]
        return float(sum(epoch["seconds"] for epoch in epochs) / len(epochs))

    def totals(self) -> dict[str, int]:
        """Sum counts over all passes."""
        epochs = self.result["epochs"]
        passes = [*epochs, *(epoch["validation"] for epoch in epochs), self.result["testing"]]
        names = ("rows_requested", "rows_hit", "bytes_needed", "bytes_read")
        return {name: sum(each[name] for each in passes) for name in names}

    def prepared(self, name: str) -> float:
        """Sum seconds or bytes of making hops."""
        return float(sum(step[name] for step in self.result.get("preparation", [])))


COMPARED: dict[str, Callable[[Run], str]] = {
    "test accuracy": lambda run: f"{run.result['test']['accuracy']:.3f}",
    "seconds per epoch": lambda run: f"{run.epoch_seconds:.2f}",
    "bytes read per epoch": lambda run: format_bytes(run.result["epochs"][-1]["bytes_read"]),
    "seconds before training": lambda run: f"{run.prepared('seconds'):.1f}",
    "bytes read before": lambda run: format_bytes(int(run.prepared("bytes_read"))),
    "bytes written before": lambda run: format_bytes(int(run.prepared("bytes_written"))),
    "total bytes from disk": lambda run: format_bytes(run.read_bytes),
    "total seconds": lambda run: f"{run.seconds:.0f}",
}

console = Console(soft_wrap=True, highlight=False)


def evict(folder: Path) -> None:
    """Drop the dataset's pages from the page cache, so that reads come from the disk."""
    for path in folder.rglob("*.bin"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def make_graph(path: Path, num_nodes: int, progress: Progress) -> float:
    """Generate the graph if it does not exist, and return the seconds it took."""
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


def train_from_disk(dataset: diskhop.Dataset, folder: Path, memory_bytes: int, options: dict[str, Any]) -> Run:
    """Train with nothing in the page cache, and count what comes from the disk."""
    out = folder / f"run-{options['model']}"
    shutil.rmtree(out, ignore_errors=True)
    evict(dataset.path)
    before_bytes, started = transfers().bytes_read, time.perf_counter()
    with TerminalCallback(console) as terminal:
        trained = diskhop.train(
            dataset,
            hidden=64,
            batch_size=1000,
            epochs=4,
            memory_bytes=memory_bytes,
            seed=0,
            out=out,
            callbacks=[terminal],
            **options,
        )
    return Run(trained.result, time.perf_counter() - started, transfers().bytes_read - before_bytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("demo-data"))
    parser.add_argument("--nodes", type=int, default=NUM_NODES)
    arguments = parser.parse_args()
    graph = arguments.folder / "sbm"
    arguments.folder.mkdir(exist_ok=True)

    feature_bytes = arguments.nodes * DIM * 4
    console.print(f"A graph of {arguments.nodes:,} nodes with {format_bytes(feature_bytes)} of features, in {graph}")
    with stage_progress(console) as progress:
        generating_seconds = make_graph(graph, arguments.nodes, progress)
    dataset = diskhop.open_dataset(graph)
    # Removes tables of an earlier demo, so that the demo shows the cost of making them.
    shutil.rmtree(graph / "derived", ignore_errors=True)
    topology_bytes = (dataset.num_nodes + 1) * 8 + dataset.num_edges * 4
    # Batches in flight are measured by the planner; four of this workload take about a tenth of the features.
    memory_bytes = topology_bytes + int(feature_bytes * CACHE_FRACTION)
    sampled, hops = (train_from_disk(dataset, arguments.folder, memory_bytes, options) for options in (SAMPLING, HOPS))
    show_sampled(sampled, feature_bytes, generating_seconds)
    show_comparison(sampled, hops)
    console.print(
        f"Next: diskhop inspect {dataset.path}; diskhop train {dataset.path} --store mapped --epochs 1; "
        f"diskhop train {dataset.path} --model hoga --epochs 1; look at {arguments.folder}/run-sage/result.json"
    )


def show_sampled(run: Run, feature_bytes: int, generating_seconds: float) -> None:
    """Print the accuracy of SAGE, and its costs."""
    result, plan = run.result, run.result["plan"]
    totals = run.totals()
    rows = [
        ("test accuracy", f"{result['test']['accuracy']:.3f}"),
        ("features alone allow", f"{features_alone_accuracy(NUM_CLASSES, SIGNAL):.3f} at best"),
        ("budget (--memory)", f"{format_bytes(plan['memory_bytes'])} for {format_bytes(feature_bytes)} of features"),
        *((f"  {name}", format_bytes(num_bytes)) for name, num_bytes in plan["reserved"].items()),
        ("peak resident memory", format_bytes(result["peak_rss_bytes"])),
        ("  outside the budget", format_bytes(result["overhead_bytes"])),
        ("rows requested", f"{totals['rows_requested']:,}"),
        ("  from disk", f"{1 - totals['rows_hit'] / totals['rows_requested']:.0%}"),
        ("bytes of these rows", format_bytes(totals["bytes_needed"])),
        ("bytes read from disk", f"{format_bytes(run.read_bytes)}, gaps included where skipping costs more"),
        ("seconds", f"{generating_seconds:.0f} generating, {run.seconds:.0f} training"),
    ]
    table = TextTable(show_header=False, box=None)
    for name, text in rows:
        table.add_row(Text(name), Text(text))
    console.print(table)


def show_comparison(sampled: Run, hops: Run) -> None:
    """Print SAGE and SIGN side by side."""
    table = TextTable(box=None)
    for title in ("", "SAGE, sampled", "SIGN, hops made before"):
        table.add_column(title)
    for name, describe in COMPARED.items():
        table.add_row(*map(Text, (name, describe(sampled), describe(hops))))
    console.print(table)


if __name__ == "__main__":
    try:
        main()
    except diskhop.DiskhopError as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        sys.exit("demo: interrupted; run it again to start over")
