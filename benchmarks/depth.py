"""Many batches in flight where the budget has room: seconds per epoch with few and with many, on small batches.

    python benchmarks/depth.py [--turns 3] [CASE ...]

Claims (issue 46): at least 1.5 times as fast on the skewed graph with `direct`, `shared` and `auto`; nowhere slower
beyond noise. Batches of 100 seeds, fan-out 10,10, graphs of 2 M nodes with 1 GB of features, in input order, a
64-wide SAGE. "few" are at most 16 batches in flight, and 8 extractors, whatever the memory.

Each run has its own process, and the files are evicted before. The sides alternate; the first epoch has cold caches and
counts too. The loss must be the same to the last bit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from diskhop.budget import format_bytes
from diskhop.dataset.dataset import open_dataset
from diskhop.generating import GraphConfig
from diskhop.pipeline import in_flight as pipeline_limits
from diskhop.planning import simulation
from diskhop.runs.start import train
from diskhop.stores import scan_costs
from papers import find_graph, print_table
from turns import peak_rss_bytes
from workloads import DEFAULT_FOLDER, evict

NUM_NODES, NUM_EDGES, DIM = 2_000_000, 30_000_000, 128
BATCHES, EPOCHS, LEAST_GAIN, NOISE = 250, 2, 1.5, 1.1
FEW, MANY = "few", "many"
# The package's constants on the side of few.
FEW_LIMITS = (
    (simulation, "MORE_IN_FLIGHT", ()),
    (pipeline_limits, "MOST_IN_FLIGHT", 16),
    (scan_costs, "_MOST_TOGETHER", 16),
)


class Case(NamedTuple):
    """A run. is_claimed: at least LEAST_GAIN times as fast with many in flight."""

    kind: str
    memory: str
    store: str
    is_claimed: bool = False


CASES = {
    "skewed direct": Case("kronecker", "400MB", "direct", True),
    "skewed static": Case("kronecker", "400MB", "static"),
    "skewed belady": Case("kronecker", "400MB", "belady"),
    "skewed shared": Case("kronecker", "400MB", "shared", True),
    "skewed packed": Case("kronecker", "400MB", "packed"),
    "skewed auto": Case("kronecker", "400MB", "auto", True),
    "uniform direct": Case("uniform", "500MB", "direct"),
    "uniform shared": Case("uniform", "500MB", "shared"),
    "uniform auto": Case("uniform", "500MB", "auto"),
}


def run(path: Path, case: Case, side: str) -> dict[str, Any]:
    """Train in this process, and return what the epochs took."""
    if side == FEW:
        for module, name, value in FEW_LIMITS:
            setattr(module, name, value)
    result = train(
        path,
        model="sage",
        hidden=64,
        fanout=(10, 10),
        batch_size=100,
        max_batches=BATCHES,
        epochs=EPOCHS,
        evaluate=False,
        store=case.store,
        ordered=case.store == "shared",
        memory=case.memory,
        seed=0,
    ).result
    epochs = result["epochs"]
    return {
        "seconds": sum(each["seconds"] for each in epochs) / len(epochs),
        "bytes": sum(each["bytes_read"] for each in epochs) / len(epochs) / BATCHES,
        "loss": epochs[-1]["loss"],
        "store": result["plan"]["store"],
        "predicted": result["plan"]["predicted"]["epoch_seconds"] if result["plan"].get("predicted") else None,
        "peak": peak_rss_bytes(),
    }


def measure(path: Path, name: str, side: str) -> dict[str, Any]:
    """Run a case in a process of its own."""
    evict(open_dataset(path))
    command = [sys.executable, __file__, "--run", str(path), name, side]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name}, {side}: failed")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="folder of the graphs, generated if missing")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    arguments = parser.parse_args()
    if arguments.run is not None:
        path, name, side = arguments.run
        print(json.dumps(run(Path(path), CASES[name], side)))
        return 0
    num_missed = 0
    for name in arguments.cases:
        case = CASES[name]
        config = GraphConfig(
            kind=case.kind,
            num_nodes=NUM_NODES,
            num_edges=NUM_EDGES,
            dim=DIM,
            num_classes=16,
            train_fraction=0.1,
            order="input",
            seed=1,
        )
        path = find_graph(arguments.dir / f"depth-{case.kind}", config).path
        found: dict[str, list[dict[str, Any]]] = {FEW: [], MANY: []}
        for _ in range(arguments.turns):
            for side, runs in found.items():
                runs.append(measure(path, name, side))
        few, many = (statistics.median(each["seconds"] for each in runs) for runs in found.values())
        losses = {each["loss"] for runs in found.values() for each in runs}
        is_met = few / many >= LEAST_GAIN if case.is_claimed else many <= NOISE * few
        num_missed += not is_met or len(losses) > 1
        verdict = "met" if is_met else "MISSED"
        cells = []
        for runs in found.values():
            seconds = [each["seconds"] for each in runs]
            cells += [f"{min(seconds):.1f}..{max(seconds):.1f}", f"{runs[-1]['bytes'] / 1e6:.1f}", runs[-1]["store"]]
        predicted = found[MANY][-1]["predicted"]
        cells += [f"{few / many:.2f}", verdict, "-" if predicted is None else f"{predicted:.1f}"]
        cells += [format_bytes(found[MANY][-1]["peak"]), "same" if len(losses) == 1 else "DIFFERENT"]
        heads = ["few: s", "MB a batch", "store", "many: s", "MB a batch", "store", "gain", "", "predicted s", "peak"]
        print_table(lambda line: print(line, flush=True), [*heads, "loss"], {name: cells})
    return 1 if num_missed else 0


if __name__ == "__main__":
    sys.exit(main())
