"""Test figures of training with every sampler, over seeds, next to those of neighbour sampling.

    python benchmarks/sampler_accuracy.py --results runs.jsonl [--seeds 5] [--source ../shared/data] [GRAPH:SAMPLER ...]

Claim (issue 39): on Cora, Open English WordNet and Tolokers every sampler is at most 1 point below neighbour sampling,
and GraphSAINT and Cluster-GCN at most 2. The presets of the graphs, with 10 neighbours per node and hop; each sampler
has the settings that training chooses: `marius` keeps all partitions resident, `marius-half` half of 48. Subgraphs take
as many steps as the others, in as many epochs as that needs. Validation and test take all neighbours. Runs are appended
to --results as they end, and those that are there already are not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diskhop.config.sampled import SampledConfig
from diskhop.config.sampler import CHOOSING, LAYER_WISE, NEIGHBOR, SAMPLERS
from diskhop.dataset.dataset import Dataset
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from diskhop.runs.nodes.defaults import resolve_config
from diskhop.runs.nodes.samplers import train_pass
from diskhop.runs.start import train

# A smaller network than the preset's, and larger steps, so that fifty runs take a quarter of an hour.
SMALLER = {"layers": 2, "hidden": 64, "norm": "layer", "dropout": 0.2, "lr": 0.01}
# Options of the graphs, by their folders.
GRAPHS: dict[str, dict[str, Any]] = {
    "cora": {"preset": "cora"},
    "heterophilous-tolokers": {"preset": "tolokers"},
    "oewn": {"preset": "oewn"} | SMALLER,
}
# Steps of a run, and validations: few, since each takes all neighbours.
STEPS = {"cora": (60, 12), "heterophilous-tolokers": (180, 3), "oewn": (324, 1)}
FANOUT = 10
LABOR_1, MARIUS_HALF = "labor-1", "marius-half"
# Every sampler of training, LABOR-1, which is an option of labor, and marius where memory does not suffice.
OPTIONS: dict[str, dict[str, Any]] = {sampler: {"sampler": sampler} for sampler in SAMPLERS}
OPTIONS[LABOR_1] = {"sampler": "labor", "importance": 1}
OPTIONS[MARIUS_HALF] = {"sampler": "marius", "node_partitions": 48, "resident_partitions": 24}
MOST_BELOW, MOST_BELOW_OF_SUBGRAPHS = 1.0, 2.0


def options_of(graph: str, name: str) -> dict[str, Any]:
    """Return the options of a run, without its seed."""
    options = {**GRAPHS[graph], **OPTIONS[name], "store": "memory"}
    if options["sampler"] not in (*LAYER_WISE, *CHOOSING):
        options["fanout"] = (FANOUT,)
    return options


def epochs_of(dataset: Dataset, graph: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the epochs of a run that takes the graph's steps, and how many are between two validations."""
    given = {name: value for name, value in options.items() if name != "preset"}
    resolved = resolve_config(dataset, given, options["preset"])
    config, rows = resolved.config, resolved.task.seeds.train
    assert isinstance(config, SampledConfig)
    if config.sampler in CHOOSING:
        num_batches = len(train_pass(config, rows, dataset.num_nodes, 0).numbers)
    else:
        num_batches = -(-len(rows) // config.batch_size)
    num_steps, num_validations = STEPS[graph]
    epochs = -(-num_steps // num_batches)
    return {"epochs": epochs, "eval_every": max(1, epochs // num_validations)}


def read_results(path: Path) -> dict[str, float]:
    """Return the figures of the runs in a file, in per cent."""
    if not path.exists():
        return {}
    runs = [json.loads(line) for line in path.read_text().splitlines()]
    return {run["run"]: run["figure"] for run in runs}


def key_of(graph: str, name: str, seed: int) -> str:
    """Return the text that only runs with equal options share."""
    content = {"graph": graph, "name": name, "seed": seed, "steps": STEPS[graph], **options_of(graph, name)}
    return json.dumps(content, sort_keys=True)


def measure(dataset: Dataset, graph: str, name: str, seed: int, path: Path) -> float:
    """Train, append the test figure to a file and return it, in per cent."""
    began = time.perf_counter()
    options = options_of(graph, name)
    trained = train(dataset, seed=seed, **options, **epochs_of(dataset, graph, options))
    figure = 100 * float(trained.result["test"][trained.result["metric"]])
    chosen = {option: getattr(trained.config, option) for option in ("fanout", "batch_size", "epochs")}
    seconds = round(time.perf_counter() - began, 1)
    with path.open("a") as file:
        record = {"run": key_of(graph, name, seed), "figure": figure, "seconds": seconds, "chosen": chosen}
        print(json.dumps(record), file=file)
    print(f"{graph} {name} seed {seed}: {figure:.2f} ({seconds} s)", file=sys.stderr, flush=True)
    return figure


def print_table(graph: str, found: dict[str, NDArray[np.float64]]) -> int:
    """Print a line per sampler; returns how many are too far below neighbour sampling."""
    print(f"\n{graph:24}{'mean':>8}{'deviation':>11}{'seeds':>7}{'to neighbor':>13}{'at most below':>15}", flush=True)
    num_missed = 0
    for name, figures in found.items():
        shown = f"{name:24}{figures.mean():8.2f}{figures.std():11.2f}{len(figures):7}"
        if name != NEIGHBOR and NEIGHBOR in found:
            most = MOST_BELOW_OF_SUBGRAPHS if name in CHOOSING else MOST_BELOW
            apart = float(figures.mean() - found[NEIGHBOR].mean())
            num_missed += apart < -most
            shown += f"{apart:+13.2f}{most:11g} {'met' if apart >= -most else 'MISSED'}"
        print(shown, flush=True)
    return num_missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("sampler-accuracy.jsonl"), help="file of finished runs")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("cases", nargs="*", default=[f"{graph}:{name}" for graph in GRAPHS for name in OPTIONS])
    arguments = parser.parse_args()
    results = read_results(arguments.results)
    num_missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for graph in GRAPHS:
            names = [name for name in OPTIONS if f"{graph}:{name}" in arguments.cases]
            dataset: Dataset | None = None
            found: dict[str, NDArray[np.float64]] = {}
            for name in names:
                figures = []
                for seed in range(arguments.seeds):
                    figure = results.get(key_of(graph, name, seed))
                    if figure is None:
                        engine = open_engine("auto").engine
                        dataset = dataset or import_graph(arguments.source / graph, Path(folder) / graph, engine=engine)
                        figure = measure(dataset, graph, name, seed, arguments.results)
                    figures.append(figure)
                found[name] = np.array(figures)
            if found:
                num_missed += print_table(graph, found)
    return 1 if num_missed else 0


if __name__ == "__main__":
    sys.exit(main())
