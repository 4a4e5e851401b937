"""Ranks of a large graph within a budget of an eighth of its embeddings, and within one for all of them.

    python benchmarks/ranking.py [--dir DIR]

2 M nodes, 40 M edges, dim 100 in 8 partitions: a table of 800 MB. Claims (issue 10): 2000 test edges ranked among all
nodes, filtered, both sides, with a budget of 100 MB: the process grows by no more, and finds the same ranks as with
4 GB. Each has its own process, under a memory cap; bytes are those read from the disk.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from cgroups import run_limited, why_no_limit
from diskhop.budget import format_bytes
from diskhop.runs.start import embed
from embeddings import COMPUTE, DIM, NUM_PARTITIONS, OVERHEAD_BYTES, find_graph, report
from workloads import DEFAULT_FOLDER

NUM_TEST_EDGES = 2000
MEMORY_BYTES, LARGE_MEMORY_BYTES = COMPUTE.num_nodes * DIM * 4 // 8, 4_000_000_000
FIGURES = ("mrr", "mean_rank", "hits_at_1", "hits_at_3", "hits_at_10", "auc")
RANK = """
import json, sys, time
import diskhop
from diskhop.system.transfers import transfers
run, memory, edges = sys.argv[1:]
started = time.perf_counter()
found = diskhop.evaluate(run, memory=int(memory), eval_edges=int(edges), eval_candidates=0, eval_filtered=True)
seconds = time.perf_counter() - started
print(json.dumps({**found, "seconds": seconds, "bytes_read": transfers().bytes_read}))
"""


def train(folder: Path) -> Path:
    """Find or train a run of one short epoch, to rank with."""
    run = folder / "ranking-run"
    shutil.rmtree(run, ignore_errors=True)
    print(f"training {run}", file=sys.stderr, flush=True)
    embed(
        find_graph(folder, COMPUTE), out=run, model="dot", dim=DIM, partitions=NUM_PARTITIONS, negatives=50,
        batch_size=50_000, chunk_size=2500, epochs=1, test_share=0.001, eval_edges=100, memory=1_500_000_000,
    )  # fmt: skip
    return run


def rank(run: Path, memory_bytes: int, is_capped: bool) -> dict[str, Any]:
    """Result of one process."""
    command = [sys.executable, "-c", RANK, str(run), str(memory_bytes), str(NUM_TEST_EDGES)]
    done = run_limited(command, memory_bytes + OVERHEAD_BYTES if is_capped else None)
    if done.returncode:
        sys.exit(f"ranking ended with {done.returncode}: {done.errors[-2000:]}")
    found: dict[str, Any] = json.loads(done.output)
    found["growth_bytes"] = found["peak_rss_bytes"] - found["resident_before_bytes"]
    print(
        f"memory {memory_bytes / 1e6:5,.0f} MB: mean rank {found['mean_rank']:,.1f}, {found['seconds']:.1f} s, "
        f"{found['bytes_read'] / 1e9:.2f} GB read, grew by {found['growth_bytes'] / 1e6:,.0f} MB to "
        f"{found['peak_rss_bytes'] / 1e6:,.0f} MB",
        flush=True,
    )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="where the graph and the run are kept: 4 GB")
    run = train(parser.parse_args().dir)
    obstacle = why_no_limit()
    print(f"cap {f'none ({obstacle})' if obstacle else 'memory + ' + format_bytes(OVERHEAD_BYTES)}")
    within, large = (rank(run, memory_bytes, not obstacle) for memory_bytes in (MEMORY_BYTES, LARGE_MEMORY_BYTES))
    shutil.rmtree(run)
    num_missed = report(
        {
            f"grew by at most the {MEMORY_BYTES / 1e6:.0f} MB": within["growth_bytes"] <= MEMORY_BYTES,
            "the same ranks": all(within[figure] == large[figure] for figure in FIGURES),
        }
    )
    return 1 if num_missed else 0


if __name__ == "__main__":
    sys.exit(main())
