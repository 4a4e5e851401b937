"""Accuracy of models on hop tables over seeds, rows shuffled one by one (SGD-RR) compared with chunks (SGD-CR).

    python benchmarks/hop_accuracy.py [--seeds 5] [--source ../shared/data] [GRAPH:MODEL ...]

By the presets, on Cora's public split and oewn's; chunks have the length that training chooses. Bars: the accuracy of
the papers and of a plain SIGN, and chunks within half a point of full reshuffling (PP-GNN, section 6.3). Tables are
made once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diskhop.dataset.dataset import Dataset
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from diskhop.runs.start import train

SHUFFLES = ("rows", "chunks")
MOST_APART = 0.5


class Bar(NamedTuple):
    """Range of test accuracy, in per cent."""

    least: float
    most: float


BARS = {
    ("cora", "sgc"): Bar(80.5, 81.5),
    ("oewn", "sgc"): Bar(55.0, 100.0),
    ("oewn", "sign"): Bar(77.0, 100.0),
    ("oewn", "hoga"): Bar(77.0, 100.0),
}


def accuracies(dataset: Dataset, model: str, shuffle: str, num_seeds: int) -> NDArray[np.float64]:
    """Train with each seed and return the test accuracies, in per cent."""
    options: dict[str, Any] = {"preset": dataset.name, "model": model, "shuffle": shuffle}
    results = [train(dataset, seed=seed, **options).result for seed in range(num_seeds)]
    return np.array([100 * result["test"][result["metric"]] for result in results])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("cases", nargs="*", default=[":".join(case) for case in BARS])
    arguments = parser.parse_args()
    num_missed = 0
    print(f"test accuracy in per cent, {arguments.seeds} seeds: mean +- standard deviation", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        datasets: dict[str, Dataset] = {}
        for case in arguments.cases:
            graph, model = case.split(":")
            if graph not in datasets:
                engine = open_engine("auto").engine
                datasets[graph] = import_graph(arguments.source / graph, Path(folder) / graph, engine=engine)
            found = {shuffle: accuracies(datasets[graph], model, shuffle, arguments.seeds) for shuffle in SHUFFLES}
            means = {shuffle: float(each.mean()) for shuffle, each in found.items()}
            apart = abs(means["chunks"] - means["rows"])
            bar = BARS[graph, model]
            is_met = apart <= MOST_APART and all(bar.least <= mean <= bar.most for mean in means.values())
            num_missed += not is_met
            shown = "   ".join(f"{name} {means[name]:.2f} +- {each.std():.2f}" for name, each in found.items())
            verdict = f"{bar.least:g} to {bar.most:g}, {MOST_APART:g} apart at most: {'met' if is_met else 'MISSED'}"
            print(f"{case:12} {shown}   apart {apart:.2f}   wanted {verdict}", flush=True)
    return 1 if num_missed else 0


if __name__ == "__main__":
    sys.exit(main())
