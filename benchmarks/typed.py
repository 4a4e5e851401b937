"""Epochs of training on a graph with types from disk, and the same with all features in memory.

Claim (issue 40): with MAG240M's proportions at 1/60 (4 M nodes in three types, 58 M edges, papers of 768 float16,
authors and institutions without features) and 15 % of the features' bytes as memory, an epoch takes at most 1.25 times
the seconds of one with all features in memory, and the planner's choice at most 1.10 times those of the best store (its
regret; name all stores).

A training has many epochs, and only its first one begins with nothing prefetched: each later one is prepared while the
one before is trained. One epoch alone would be a figure of that start, the later ones alone would leave it out. So an
epoch's seconds are the mean of a run of five, which still counts the start more than a longer training would; the
first epoch, the later ones, and the whole run, in which `memory` loads the features, are shown next to it. Each is a
ratio to `memory` of the same turn: the median over turns, with the lowest and the highest.

Files are evicted before each turn; --max-batches bounds an epoch. --predict also predicts the class of every paper with
that memory, by the model of such a run.

    python benchmarks/typed.py --stores auto,direct,static,belady,shared,packed --predict
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from diskhop.budget import format_bytes
from diskhop.config.node_kinds import KINDS
from diskhop.config.options import AUTO, load_config
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.generating.typed import generate_typed_graph
from diskhop.generating.typed_config import TypedConfig
from diskhop.io.engine import open_engine
from diskhop.run_files import CONFIG_FILE
from diskhop.runs.predict.run import predict_run
from diskhop.runs.start import train
from turns import take_turn
from workloads import DEFAULT_FOLDER, evict

NUM_NODES, NUM_EDGES, MEMORY_SHARE = 4_000_000, 58_000_000, 0.15
WANTED_RATIO, WANTED_REGRET = 1.25, 1.10
# Figures of a run in seconds, and what they are called.
FIGURES = {"seconds": "epoch", "first": "first", "later": "later", "run": "run"}
OPTIONS: dict[str, Any] = {
    "model": "hetero-sage",
    "features": "degree",
    "hidden": 128,
    "fanout": (10, 5),
    "batch_size": 500,
    "evaluate": False,
    "seed": 0,
}

# Figures of each turn, by store.
Found = dict[str, list[dict[str, float]]]


def find_graph(folder: Path, num_nodes: int) -> Dataset:
    """Open the graph, or generate it."""
    path = folder / f"mag-{num_nodes}"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        config = TypedConfig(shape="mag", num_nodes=num_nodes, num_edges=NUM_EDGES * num_nodes // NUM_NODES, seed=1)
        generate_typed_graph(path, config, engine=open_engine().engine)
    return open_dataset(path)


def train_epochs(path: Path, options: dict[str, Any], stages: dict[str, float]) -> None:
    """Train in a process of its own. The first run merges the lists, which is not counted."""
    evict(open_dataset(path))
    began = time.perf_counter()
    result = train(open_dataset(path), **options, out=None).result
    stages["run"] = time.perf_counter() - began
    for name in ("seconds", "sample_seconds", "stall_seconds", "bytes_read", "bytes_needed", "rows_hit"):
        stages[name] = statistics.fmean(epoch[name] for epoch in result["epochs"])
    stages["first"] = result["epochs"][0]["seconds"]
    # Without later epochs, the first one.
    later = result["epochs"][1:] or result["epochs"]
    stages["later"] = statistics.fmean(epoch["seconds"] for epoch in later)
    stages["rows"] = statistics.fmean(epoch["rows_requested"] for epoch in result["epochs"])
    stages["overhead"] = result["overhead_bytes"]


def train_run(path: Path, out: Path, options: dict[str, Any], stages: dict[str, float]) -> None:
    """Train a model to predict with."""
    train(open_dataset(path), **options, out=out)


def predict_papers(run: Path, out: Path, memory_bytes: int, stages: dict[str, float]) -> None:
    """Predict all nodes of the target type in a process of its own. Lists are merged already."""
    evict(open_dataset(load_config(run / CONFIG_FILE, KINDS).dataset))
    began = time.perf_counter()
    done = predict_run(run, out=out, memory=memory_bytes, overwrite=True)
    stages["seconds"], stages["rows"] = time.perf_counter() - began, done.result["rows"]
    stages["overhead"] = done.result["overhead_bytes"]


def show_prediction(folder: Path, path: Path, memory_bytes: int, options: dict[str, Any], out: TextIO) -> None:
    """Train, predict every paper, and print a line."""
    run = folder / f"{path.name}-run"
    shutil.rmtree(run, ignore_errors=True)
    take_turn(train_run, path, run, options)
    taken = take_turn(predict_papers, run, folder / f"{path.name}-predicted", memory_bytes)
    print(
        f"predict: {taken.stages['rows']:,.0f} papers in {taken.stages['seconds']:.1f} s, read "
        f"{taken.bytes_read / 1e9:.2f} GB, written {taken.bytes_written / 1e9:.2f} GB, peak "
        f"{taken.peak_rss_bytes / 1e9:.2f} GB, {taken.stages['overhead'] / 1e9:.2f} GB of it outside the budget",
        file=out,
        flush=True,
    )


def ratios_to_memory(found: Found, name: str) -> dict[str, list[float]]:
    """Return a figure of each store as ratios to `memory`, turn by turn, in ascending order."""
    in_memory = [turn[name] for turn in found["memory"]]
    return {
        store: sorted(turn[name] / base for turn, base in zip(turns, in_memory, strict=True))
        for store, turns in found.items()
        if store != "memory"
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="where the graph is kept")
    parser.add_argument("--nodes", type=int, default=NUM_NODES)
    parser.add_argument("--stores", default="auto", help="names, separated by commas, beside the store memory")
    parser.add_argument("--batch-size", type=int, default=OPTIONS["batch_size"], help="smaller for a smaller graph")
    parser.add_argument("--max-batches", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=5, help="of each run")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--predict", action="store_true", help="also predict every paper")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the table on stderr")
    arguments = parser.parse_args()
    out = sys.stderr if arguments.json else sys.stdout
    dataset = find_graph(arguments.dir, arguments.nodes)
    table_bytes = sum(
        table.num_rows * table.row_bytes
        for nodes in dataset.nodes.values()
        if (table := nodes.feature_table()) is not None
    )
    memory = {"memory": 4 * table_bytes} | {
        store: int(MEMORY_SHARE * table_bytes) for store in arguments.stores.split(",")
    }
    print(f"features {format_bytes(table_bytes)}, memory {format_bytes(int(MEMORY_SHARE * table_bytes))}", file=out)
    headings = [f"{title + ' s':>10}" for title in FIGURES.values()]
    print(f"{'store':10}{''.join(headings)}{'read GB':>10}{'hits':>8}{'peak GB':>10}", file=out)
    found: Found = {store: [] for store in memory}
    for turn in range(-1, arguments.turns) if arguments.turns else ():
        for store, memory_bytes in memory.items():
            options = {**OPTIONS, "store": store, "memory_bytes": memory_bytes, "batch_size": arguments.batch_size}
            options |= {"max_batches": arguments.max_batches, "epochs": arguments.epochs}
            taken = take_turn(train_epochs, dataset.path, options)
            stages = {**taken.stages, "peak": taken.peak_rss_bytes}
            if turn < 0:  # Merges lists, compiles and measures the disk.
                continue
            found[store].append(stages)
            hits = stages["rows_hit"] / max(1, stages["rows"])
            shown = "".join(f"{stages[name]:10.2f}" for name in FIGURES)
            print(
                f"{store:10}{shown}{stages['bytes_read'] / 1e9:10.2f}{hits:8.1%}{stages['peak'] / 1e9:10.2f}",
                file=out,
                flush=True,
            )
    if arguments.predict:
        options = {**OPTIONS, "memory_bytes": 4 * table_bytes, "max_batches": arguments.max_batches, "epochs": 1}
        show_prediction(arguments.dir, dataset.path, int(MEMORY_SHARE * table_bytes), options, out)
    if not arguments.turns:
        return 0
    ratios = {name: ratios_to_memory(found, name) for name in FIGURES}
    for store in ratios["seconds"]:
        parts = []
        for name, title in FIGURES.items():
            of_turns = ratios[name][store]
            parts.append(f"{title} {statistics.median(of_turns):.2f} ({of_turns[0]:.2f} to {of_turns[-1]:.2f})")
        print(f"{store}, of all in memory: {', '.join(parts)}", file=out)
    middle = {store: statistics.median(turn["seconds"] for turn in turns) for store, turns in found.items()}
    regret = middle[AUTO] / min(middle[store] for store in middle if store != "memory") if AUTO in middle else 1.0
    print(f"regret of the planner: {regret:.2f}", file=out)
    if arguments.json:
        print(json.dumps({"turns": found, "ratios": ratios, "regret": regret}))
    ratio = statistics.median(ratios["seconds"].get(AUTO, [1.0]))
    return 0 if ratio <= WANTED_RATIO and regret <= WANTED_REGRET else 1


if __name__ == "__main__":
    sys.exit(main())
