"""Ranks of a large graph within a budget of an eighth of its embeddings, beside all the memory that they want.

    python benchmarks/ranking.py [--dir DIR]

2 M nodes, 40 M edges, dim 100 in 8 partitions: a table of 800 MB. Claims (issue 10): 2000 test edges ranked among all
nodes, filtered, both sides, with a budget of 100 MB: the process grows by no more, and finds the same ranks as with
4 GB. Each run is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from diskhop.training import embed
from embeddings import COMPUTE, DIM, NUM_PARTITIONS, find_graph
from workloads import DEFAULT_FOLDER

NUM_TEST_EDGES = 2000
MEMORY_BYTES, LARGE_MEMORY_BYTES = COMPUTE.num_nodes * DIM * 4 // 8, 4_000_000_000
FIGURES = ("mrr", "mean_rank", "hits_at_1", "hits_at_3", "hits_at_10", "auc")
RANK = """
import json, sys, time
import diskhop
run, memory, edges = sys.argv[1:]
started = time.perf_counter()
found = diskhop.evaluate_run(run, memory=int(memory), eval_edges=int(edges), eval_candidates=0, eval_filtered=True)
print(json.dumps({**found, "seconds": time.perf_counter() - started}))
"""


def find_run(folder: Path) -> Path:
    """A run of one short epoch, whose last commit is ranked; kept for the next time."""
    run = folder / "ranking-run"
    is_begun = run.exists()
    print(f"{'going on with' if is_begun else 'training'} {run}", file=sys.stderr, flush=True)
    if is_begun:
        embed(out=run, resume=True)
    else:
        embed(
            find_graph(folder, COMPUTE), out=run, model="dot", dim=DIM, partitions=NUM_PARTITIONS, negatives=50,
            batch_size=50_000, chunk_size=2500, epochs=1, test_share=0.001, eval_edges=100, memory=1_500_000_000,
        )  # fmt: skip
    return run


def rank(run: Path, memory_bytes: int) -> dict[str, Any]:
    """What a process of its own finds."""
    arguments = [sys.executable, "-c", RANK, str(run), str(memory_bytes), str(NUM_TEST_EDGES)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"ranking ended with {done.returncode}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    found["growth_bytes"] = found["peak_rss_bytes"] - found["resident_before_bytes"]
    print(
        f"memory {memory_bytes / 1e6:5,.0f} MB: MRR {found['mrr']:.6f}, {found['seconds']:.1f} s, the process grew by "
        f"{found['growth_bytes'] / 1e6:,.0f} MB to {found['peak_rss_bytes'] / 1e6:,.0f} MB",
        flush=True,
    )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="where the graph and the run are kept: 4 GB")
    run = find_run(parser.parse_args().dir)
    within, large = rank(run, MEMORY_BYTES), rank(run, LARGE_MEMORY_BYTES)
    claims = {
        f"grew by at most the {MEMORY_BYTES / 1e6:.0f} MB": within["growth_bytes"] <= MEMORY_BYTES,
        "the same ranks": all(within[figure] == large[figure] for figure in FIGURES),
    }
    for claim, is_met in claims.items():
        print(f"{claim}: {'met' if is_met else 'MISSED'}", flush=True)
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
