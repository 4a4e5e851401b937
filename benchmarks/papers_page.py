"""Write docs/papers.md: every figure and table of the five papers, the paper's figure next to ours.

    python benchmarks/papers_page.py [--quick] [--only SCRIPT ...] [--page-only]

Runs the papers' scripts, keeps their JSON in benchmarks/results/papers/, and writes the page from what is there: a row
of a script that never ran says so. Figures of quick runs are marked.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from papers import HERE

RESULTS, PAGE = HERE / "results" / "papers", HERE.parent / "docs" / "papers.md"
NAMES = {
    "paper_ginex": "Ginex (PVLDB 15(11), 2022)",
    "paper_gnndrive": "GNNDrive (ICPP 2024)",
    "paper_diskgnn": "DiskGNN (SIGMOD 2024)",
    "paper_legend": "Legend (PVLDB, 2025)",
    "paper_prepropagation": "PP-GNN (MLSys 2025)",
}
_HEAD = """# The papers' figures and tables

Written by `make papers` from JSON; do not edit. Papers measure on GPUs and servers, ours run on a laptop's cores and
disk, so only ratios compare. *reproduced*: at least 90% of the paper's figure; *better*: beyond it; *plotted only*: the
paper gives no number.

PyG+ maps the rows and `indices`, with read-ahead disabled as in Ginex's paper, and samples by our sampler: PyG's own
needs `torch-sparse` or `pyg-lib`, for which no package fits this PyTorch. MariusGNN is our sampler `marius` with its
resident partitions in memory. DGL-OnDisk is one pread after the other, as DiskGNN's authors made it."""
# The papers' trainer is a GPU, which leaves the cores to sampling and I/O.
TRAINER = "stand-in:12ms"
_TRAINED = ("paper_ginex", "paper_gnndrive", "paper_diskgnn")
# Figures and tables of each paper, and why one has no figure of ours.
FIGURES: Mapping[str, Mapping[str, str]] = {
    "paper_ginex": {
        **dict.fromkeys(("Figure 4", "Figure 5", "Figure 6"), ""),
        "Figure 13": "pseudocode; `benchmarks/caches.py` runs it in NumPy next to the core's changesets",
        **dict.fromkeys((f"Figure {number}" for number in range(14, 20)), ""),
    },
    "paper_gnndrive": {
        "Figure 2": "",
        "Figures 3 and 11": "",
        **dict.fromkeys((f"Figure {number}" for number in (8, 9, 10, 12, 14)), ""),
        "Figure B.1": "",
        "Table 2": "",
    },
    "paper_diskgnn": {
        "Figures 5 and 13": "",
        "Table 1, Figures 8 and 9": "",
        **dict.fromkeys((f"Figure {number}" for number in (10, 11, 12, 14)), ""),
        "Table 3": "the paper's graphs: ours stand for two of them",
        "Table 4": "",
        "Table 5": "",
    },
    "paper_legend": {
        **dict.fromkeys(("Table 5", "Table 6", "Table 7", "Table 8", "Table 10", "Figure 8"), ""),
    },
    "paper_prepropagation": {
        **dict.fromkeys((f"Figure {number}" for number in (2, 3, 4, 5)), ""),
        "Figures 7 and 11": "",
        **dict.fromkeys(("Figure 9", "Figure 10", "Figure 12", "Figure 14, appendix H"), ""),
        "Tables 2 and 7": "",
        "Table 6": "",
        "Appendix I": "",
    },
}


def run_script(script: str, is_quick: bool) -> bool:
    """Run a paper's script and keep its JSON, with the hours it took; returns whether nothing in it failed."""
    started = time.monotonic()
    options = [*(["--quick"] if is_quick else []), *(["--trainer", TRAINER] if script in _TRAINED else [])]
    command = [sys.executable, str(HERE / f"{script}.py"), "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        print(f"{script}: exit code {done.returncode}, no results", file=sys.stderr)
        return False
    document = json.loads(done.stdout)
    document |= {"hours": (time.monotonic() - started) / 3600, "quick": is_quick}
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{script}.json").write_text(json.dumps(document, indent=1) + "\n")
    return done.returncode == 0


def read_results(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the kept documents by script."""
    paths = {script: folder / f"{script}.json" for script in NAMES}
    return {script: json.loads(path.read_bytes()) for script, path in paths.items() if path.exists()}


def write_page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page: a table for each paper, with a row for each of its figures."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield _HEAD
    for script, name in NAMES.items():
        document = results.get(script, {})
        yield f"\n## {name}\n"
        if document:
            size = "quick sizes, one turn: no evidence" if document["quick"] else "full size"
            trainer = f", trainer: {document['trainer']}" if "trainer" in document else ""
            yield f"`benchmarks/{script}.py`, {size}{trainer}, {document['hours']:.1f} hours.\n"
        yield "| figure | what | paper | ours | verdict |"
        yield "|---|---|---|---|---|"
        for figure, why_not in FIGURES[script].items():
            found = [each for each in document.get("findings", []) if each["figure"] == figure]
            for each in found:
                paper = "-" if each["paper"] is None else f"{each['paper']:.3g}"
                yield f"| {figure} | {each['claim']} | {paper} | {each['ours']:.3g} | {each['verdict']} |"
            if not found:
                yield f"| {figure} | | | | not run{f': {why_not}' if why_not else ''} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="quick sizes of all scripts")
    parser.add_argument("--only", nargs="*", choices=list(NAMES), default=list(NAMES), help="papers to run")
    parser.add_argument("--page-only", action="store_true", help="run nothing; write the page from kept results")
    arguments = parser.parse_args()
    done = [] if arguments.page_only else [run_script(script, arguments.quick) for script in arguments.only]
    PAGE.write_text(write_page(read_results(RESULTS)))
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
