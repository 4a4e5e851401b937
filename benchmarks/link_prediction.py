"""Link prediction by the presets, with one partition and with eight, next to published figures; and seconds of ranking.

    python benchmarks/link_prediction.py [--source ../shared/data] [--partitions 1,8] [GRAPH:MODEL ...]

Filtered MRR over all entities, all test edges, both sides, ties realistic. Claims (issue 10): at least the bars, each
within 30 minutes; eight partitions within .01 of one; fb15k-237's test edges ranked within 60 s. Each run has its
own process. The exit code is 1 if a claim is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine

# Filtered MRR. The issue only asks to report RotatE; this bar is what it has reached.
BARS = {
    ("fb15k-237", "complex"): 0.33,
    ("fb15k-237", "distmult"): 0.33,
    ("fb15k-237", "transe"): 0.30,
    ("wn18rr", "complex"): 0.44,
    ("wn18rr", "rotate"): 0.45,
    ("codex-s", "complex"): 0.44,
}
MOST_MINUTES, MOST_APART, MOST_RANKING_SECONDS = 30, 0.01, 60
TRAIN = """
import json, sys, time
import diskhop
dataset, model, partitions, preset, out = sys.argv[1:]
started = time.perf_counter()
done = diskhop.embed(dataset, out=out, preset=preset, model=model, partitions=int(partitions))
minutes = (time.perf_counter() - started) / 60
started = time.perf_counter()
again = diskhop.evaluate(out).result
print(json.dumps({"test": done.result["test"], "minutes": minutes, "ranking_seconds": time.perf_counter() - started,
                  "same": again["mrr"] == done.result["test"]["mrr"], "peak_rss_bytes": done.result["peak_rss_bytes"]}))
"""


def run_case(dataset: Path, graph: str, model: str, partitions: int, out: Path) -> dict[str, Any]:
    """Result of one process."""
    arguments = [str(dataset), model, str(partitions), graph, str(out)]
    done = subprocess.run([sys.executable, "-c", TRAIN, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{graph}:{model} ended with {done.returncode}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--partitions", default="1,8", help="how many, a run with each")
    parser.add_argument("cases", nargs="*", default=[":".join(case) for case in BARS])
    arguments = parser.parse_args()
    numbers = [int(number) for number in arguments.partitions.split(",")]
    num_missed = 0

    def judge(text: str, is_met: bool) -> str:
        nonlocal num_missed
        num_missed += not is_met
        return f"{text}: {'met' if is_met else 'MISSED'}"

    with tempfile.TemporaryDirectory() as folder:
        for case in arguments.cases:
            graph, model = case.split(":")
            dataset = Path(folder) / graph
            if not dataset.exists():
                import_graph(arguments.source / graph, dataset, engine=open_engine("auto").engine)
            reached: list[float] = []
            for partitions in numbers:
                out = Path(folder) / f"{graph}-{model}-{partitions}"
                found = run_case(dataset, graph, model, partitions, out)
                test = found["test"]
                reached.append(test["mrr"])
                hits = ", ".join(f"{test[f'hits_at_{k}']:.3f} at {k}" for k in (1, 3, 10))
                print(
                    f"{graph:10} {model:9} {partitions} partitions  MRR {test['mrr']:.4f}, hits {hits}, "
                    f"AUC {test['auc']:.4f}  {found['minutes']:.1f} min, ranks {found['ranking_seconds']:.1f} s, "
                    f"{found['peak_rss_bytes'] / 1e6:,.0f} MB peak",
                    flush=True,
                )
                assert found["same"], "a run measured again has the same ranks"
                claims = [judge(f"within {MOST_MINUTES} min", found["minutes"] <= MOST_MINUTES)]
                if partitions == 1:
                    claims.append(judge(f"at least {BARS[graph, model]}", test["mrr"] >= BARS[graph, model]))
                claims.append(
                    judge(f"ranks {MOST_RANKING_SECONDS} s", found["ranking_seconds"] <= MOST_RANKING_SECONDS)
                )
                print("   " + "; ".join(claims), flush=True)
            apart = max(reached) - min(reached)
            if len(reached) > 1:
                print("   " + judge(f"{apart:.4f} apart, at most {MOST_APART}", apart <= MOST_APART), flush=True)
    return 1 if num_missed else 0


if __name__ == "__main__":
    sys.exit(main())
