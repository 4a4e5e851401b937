"""Predicted and measured memory of whole runs: models, widths, batch sizes and stores; embeddings and predictions.

    python benchmarks/total_memory.py [--nodes 400000] [--edges 6000000] [CASE ...]

Claims (issue 45): the prediction of the peak is within 15 % of what the kernel measures. A run in a control group of
its total and 5 % finishes; in one of half of that it is refused in one line before anything is written.

The predicted peak is the most that the run reserves at once and the predicted overhead; the measured one is its peak
resident memory. Control groups need root; without them only predictions are measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from cgroups import Limited, run_limited, why_no_limit
from diskhop.budget import format_bytes, parse_bytes
from diskhop.generating.config import GraphConfig
from diskhop.generating.graph import generate_graph
from diskhop.io.engine import open_engine

MOST_ERROR = 0.15
_AMPLE = "8GB"
# Lines that a slow machine has besides.
_WAITING = ("Waiting for memory:", "Planning:")
_TRAIN = ["--epochs", "2", "--max-batches", "12", "--seed", "0"]
# Most edges are left out of training, for time.
_EMBED = [*("--epochs", "1", "--valid-share", ".45", "--test-share", ".45"), *("--eval-edges", "2000", "--seed", "0")]
_QUICK = [*("--epochs", "1", "--max-batches", "2", "--no-eval"), *("--memory", "900MB", "--seed", "0")]


class Case(NamedTuple):
    """A run. options: of the command, as words. memory: of graph data. run: options of the run that predicts."""

    options: str
    memory: str
    command: str = "train"
    run: str = ""


CASES = {
    "sage-256-1000-direct": Case("--model sage --hidden 256 --batch-size 1000 --store direct", "250MB"),
    "sage-512-4000-belady": Case("--model sage --hidden 512 --batch-size 4000 --store belady", "400MB"),
    "sage-128-1000-3hops-static": Case(
        "--model sage --hidden 128 --fanout 10,10,5 --eval-fanout 10,10,5 --batch-size 1000 --store static", "500MB"
    ),
    "sage-1024-500-shared": Case("--model sage --hidden 1024 --batch-size 500 --store shared --ordered", "300MB"),
    "sage-256-2000-packed": Case("--model sage --hidden 256 --batch-size 2000 --store packed", "350MB"),
    "gcn-256-2000-memory": Case("--model gcn --hidden 256 --batch-size 2000 --store memory", "700MB"),
    "gcn-64-8000-static": Case("--model gcn --hidden 64 --batch-size 8000 --store static", "600MB"),
    "gat-128-1000-belady": Case("--model gat --hidden 128 --batch-size 1000 --store belady", "300MB"),
    "gat-256-3000-direct": Case("--model gat --hidden 256 --batch-size 3000 --store direct", "400MB"),
    "sign-512-8000-memory": Case("--model sign --hidden 512 --hops 3 --batch-size 8000 --placement memory", "900MB"),
    "hoga-128-4000-disk": Case("--model hoga --hidden 128 --hops 3 --batch-size 4000 --placement disk", "200MB"),
    "sgc-50000-disk": Case("--model sgc --hops 2 --batch-size 50000 --placement disk", "250MB"),
    "embed-dot-128-20000": Case("--model dot --dim 128 --batch-size 20000 --negatives 500", "500MB", "embed"),
    "embed-dot-256-partitions": Case("--model dot --dim 256 --batch-size 5000 --negatives 200", "250MB", "embed"),
    "predict-sage-256": Case("--what probabilities", "300MB", "predict", "--model sage --hidden 256"),
    "predict-sage-128-sampled": Case("--fanout 10,10", "400MB", "predict", "--model sage --hidden 128"),
    "predict-gat-128": Case("--what class,embedding", "250MB", "predict", "--model gat --hidden 128"),
    "predict-sign-512": Case("--format npy", "200MB", "predict", "--model sign --hidden 512 --hops 2"),
}


def run(source: Path, case: Case, out: Path, limit_bytes: int | None, *more: str) -> Limited:
    """Run a case in a process of its own. source: the dataset, or the run that predicts."""
    common = {"train": _TRAIN, "embed": _EMBED, "predict": []}[case.command]
    command = [sys.executable, "-m", "diskhop", case.command, str(source), *case.options.split(), *common]
    return run_limited([*command, *more, "--json", "--out", str(out)], limit_bytes, timeout_seconds=1800)


def train_predictor(dataset: Path, case: Case, out: Path) -> Path:
    """Train the run that a case predicts by, for a few batches."""
    command = [sys.executable, "-m", "diskhop", "train", str(dataset), *case.run.split(), *_QUICK, "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    return out


def measure(name: str, case: Case, dataset: Path, folder: Path, *, has_groups: bool) -> bool:
    """Run a case free, in enough memory and in half of it; print a line and return whether all is as claimed."""
    source = dataset if not case.run else train_predictor(dataset, case, folder / f"{name}-run")
    # A total is named, so that the overhead is predicted though there is ample room.
    free = run(source, case, folder / name, None, "--memory", case.memory, "--total-memory", _AMPLE)
    if free.returncode != 0:
        print(f"{name:28} failed: {free.errors.strip().splitlines()[-1]}", flush=True)
        return False
    result: dict[str, Any] = json.loads(free.output)
    peak, overhead = result["peak_rss_bytes"], result["predicted_overhead_bytes"]
    # At once: what a run reserves first may be gone when the rest is reserved.
    reserved = peak - result["overhead_bytes"]
    ratio = (reserved + overhead) / peak
    figures = [reserved, overhead, result["overhead_bytes"], reserved + overhead, peak]
    line = f"{name:28}" + "".join(f"{format_bytes(each):>10}" for each in figures) + f"{ratio:8.2f}"
    is_good = bool(abs(ratio - 1) <= MOST_ERROR)
    if has_groups:
        total = parse_bytes(case.memory) + overhead
        capped = run(source, case, folder / f"{name}-capped", int(1.05 * total), "--total-memory", f"{total}B")
        refused = run(source, case, folder / f"{name}-refused", total // 2, "--memory", case.memory)
        lines = [line for line in refused.errors.strip().splitlines() if not line.startswith(_WAITING)]
        is_refused = refused.returncode == 2 and len(lines) == 1 and not (folder / f"{name}-refused").exists()
        is_good &= capped.returncode == 0 and is_refused
        line += f"  {'finished' if capped.returncode == 0 else f'ended with {capped.returncode}':10}"
        line += f"  {'refused' if is_refused else f'ended with {refused.returncode}'}"
        if not is_refused or capped.returncode:
            line += "\n" + (capped.errors if capped.returncode else refused.errors).strip()[-2000:]
    print(line, flush=True)
    return is_good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=400_000)
    parser.add_argument("--edges", type=int, default=6_000_000)
    parser.add_argument("--free", action="store_true", help="run without control groups")
    parser.add_argument("cases", nargs="*", default=list(CASES))
    arguments = parser.parse_args()
    reason = "not asked for" if arguments.free else why_no_limit()
    if reason:
        print(f"no control groups: {reason}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dataset = folder / "graph"
        config = GraphConfig(
            kind="kronecker",
            num_nodes=arguments.nodes,
            num_edges=arguments.edges,
            dim=128,
            num_classes=47,
            train_fraction=0.3,
            eval_fraction=0.02,
            order="hot",
            seed=1,
        )
        generate_graph(dataset, config, engine=open_engine("auto").engine)
        print(
            f"{'case':28}{'reserved':>10}{'overhead':>10}{'measured':>10}{'peak':>10}{'measured':>10}{'ratio':>8}"
            "  total + 5 %  half"
        )
        are_good = [measure(name, CASES[name], dataset, folder, has_groups=not reason) for name in arguments.cases]
    print(f"{sum(are_good)} of {len(are_good)} as claimed")
    return 0 if all(are_good) else 1


if __name__ == "__main__":
    raise SystemExit(main())
