"""Run every benchmark, one after the other, and keep their output in benchmarks/results/."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
# Modules that benchmarks import, or run in processes of theirs.
NO_BENCHMARKS = {
    "baseline_stores",
    "cgroups",
    "device_runs",
    "devices",
    "diskgnn_systems",
    "fetching",
    "ginex_accesses",
    "ginex_systems",
    "gnndrive_systems",
    "graphs",
    "hop_runs",
    "individual_packing",
    "marius_system",
    "packing_runs",
    "paper_plots",
    "paper_results",
    "papers",
    "papers_page",
    "peers_graphbolt",
    "peers_reading",
    "peers_training",
    "planner_docs",
    "run_all",
    "stand_in",
    "steps",
    "switches",
    "training",
    "turns",
    "workloads",
}

# Options of benchmarks with results that appear in the documentation.
OPTIONS = {"planner": ["--docs"]}


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    failed = []
    for script in sorted(HERE.glob("*.py")):
        if script.stem in NO_BENCHMARKS:
            continue
        print(f"== {script.name}", flush=True)
        done = subprocess.run(
            [sys.executable, str(script), *OPTIONS.get(script.stem, [])], stdout=subprocess.PIPE, text=True, check=False
        )
        sys.stdout.write(done.stdout)
        (results / f"{script.stem}.txt").write_text(done.stdout)
        if done.returncode != 0:
            failed.append(script.name)
    if failed:
        sys.exit(f"benchmarks that failed or missed a figure: {', '.join(failed)}")


if __name__ == "__main__":
    main()
