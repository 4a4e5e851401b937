"""Write docs/papers.md: every figure and table of the five papers, the paper's figure next to ours.

    python benchmarks/papers_page.py [--quick] [--only SCRIPT[:EXPERIMENT,...] ...] [--page-only]

Runs the papers' scripts, which keep the results of each experiment in docs/papers/, and writes the page from what is
there: the newest run of each figure counts, a whole one rather than a quick one. A figure that never ran says so.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from paper_plots import draw
from paper_results import Finding, read_results
from papers import HERE

PAGE = HERE.parent / "docs" / "papers.md"
RESULTS = PAGE.with_suffix("")
NAMES = {
    "paper_ginex": "Ginex (PVLDB 15(11), 2022)",
    "paper_gnndrive": "GNNDrive (ICPP 2024)",
    "paper_diskgnn": "DiskGNN (SIGMOD 2024)",
    "paper_legend": "Legend (PVLDB, 2025)",
    "paper_prepropagation": "PP-GNN (MLSys 2025)",
}
_HEAD = """# The papers' figures and tables

Written by `make papers` from JSON; do not edit. Papers measure on GPUs and servers, ours run on a laptop's cores and
disk, so only ratios compare. *reproduced*: at least 90% of the paper's figure; *better*: beyond it; *stronger*: beyond
it, of a fault of a system that the paper compares with; *plotted only*: the paper gives no number. *quick* sizes are
small and run once, which is no evidence: `make papers` measures the whole.

PyG+ maps the rows and `indices`, with read-ahead disabled as in Ginex's paper, and samples by our sampler: PyG's own
needs `torch-sparse` or `pyg-lib`, for which no package fits this PyTorch. MariusGNN is our sampler `marius` with its
resident partitions in memory. DGL-OnDisk is one pread after the other, as DiskGNN's authors made it."""
# The papers' trainer is a GPU, which leaves the cores to sampling and I/O. DiskGNN's takes about .7 of the time of
# reading (Table 5: sequential less pipelined), for batches that request 340 MB; ours request 5, and of --quick 2.
TRAINERS = {
    "paper_ginex": ("stand-in:12ms", "stand-in:12ms"),
    "paper_gnndrive": ("stand-in:12ms", "stand-in:12ms"),
    "paper_diskgnn": ("stand-in:4ms", "stand-in:2ms"),
    "paper_legend": ("stand-in:12ms", "stand-in:12ms"),
}
# Figures and tables of each paper, and why one has no figure of ours.
FIGURES: Mapping[str, Mapping[str, str]] = {
    "paper_ginex": {
        **dict.fromkeys(("Figure 4", "Figure 5", "Figure 6"), ""),
        **dict.fromkeys((f"Figure {number}" for number in range(13, 20)), ""),
    },
    "paper_gnndrive": {
        "Figure 2": "",
        "Figures 3 and 11": "",
        **dict.fromkeys((f"Figure {number}" for number in (8, 9, 10, 12)), ""),
        "Figure 13": "measured by `benchmarks/ranks.py --keep docs/papers`",
        "Figure 14": "",
        "Figure B.1": "",
        "Table 2": "",
    },
    "paper_diskgnn": {
        "Figures 5 and 13": "",
        "Table 1, Figures 8 and 9": "",
        **dict.fromkeys((f"Figure {number}" for number in (10, 11, 12, 14)), ""),
        "Table 3": "",
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


def run_script(script: str, only: str, is_quick: bool) -> bool:
    """Run a paper's script, all experiments or those of a list; returns whether nothing in it failed."""
    options = [
        *(["--quick"] if is_quick else []),
        *(["--only", only] if only else []),
        *(["--trainer", TRAINERS[script][is_quick]] if script in TRAINERS else []),
    ]
    command = [sys.executable, str(HERE / f"{script}.py"), "--keep", str(RESULTS), *options]
    return subprocess.run(command, check=False).returncode == 0


def write_page(results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return the page: a table for each paper, with a row for each of its figures. results: by script and figure."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    yield _HEAD
    for script, name in NAMES.items():
        by_figure = results.get(script, {})
        yield f"\n## {name}\n"
        if by_figure:
            yield f"`benchmarks/{script}.py`{_how_run(list(by_figure.values()))}.\n"
        yield "| figure | what | paper | ours | verdict | why | sizes |"
        yield "|---|---|---|---|---|---|---|"
        for figure, why_not in FIGURES[script].items():
            if figure not in by_figure:
                yield f"| {figure} | | | | not run | {why_not} | |"
                continue
            document = by_figure[figure]
            size = "quick" if document["quick"] else "whole"
            for each in document["findings"]:
                if each["figure"] == figure:
                    yield f"| {figure} | {each['claim']} | {_cells(each)} | {size} |"
        yield from _draw(script, by_figure)


def _how_run(documents: list[Mapping[str, Any]]) -> str:
    """Return trainers and hours of experiments, each counted once."""
    experiments = {document["experiment"]: document for document in documents}
    trainers = sorted({document["trainer"] for document in documents} - {""})
    hours = sum(document["hours"] for document in experiments.values())
    return f"{''.join(f', trainer: {trainer}' for trainer in trainers)}, {hours:.1f} hours"


def _cells(finding: Mapping[str, Any]) -> str:
    found = Finding(**{each.name: finding[each.name] for each in fields(Finding)})
    paper = "-" if found.paper is None else f"{found.paper:.3g}"
    return f"{paper} | {found.ours:.3g} | {found.verdict} | {found.why}"


def _draw(script: str, by_figure: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Draw the plots of a paper's figures next to the results, and yield their lines on the page."""
    for figure in FIGURES[script]:
        for plot in by_figure.get(figure, {"plots": []})["plots"]:
            if plot["figure"] == figure:
                name = "-".join([script, *re.findall(r"\w+", f"{figure} {plot['part']}".lower())])
                (RESULTS / f"{name}.svg").write_text(draw(plot))
                yield f"\n![{figure}: {plot['y']}]({RESULTS.name}/{name}.svg)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="quick sizes of all scripts")
    parser.add_argument(
        "--only",
        nargs="*",
        default=list(NAMES),
        metavar="SCRIPT[:EXPERIMENT,...]",
        help=f"what to run, e.g. paper_ginex:figure14,figure15; scripts: {', '.join(NAMES)}",
    )
    parser.add_argument("--page-only", action="store_true", help="run nothing; write the page from kept results")
    arguments = parser.parse_args()
    chosen = [each.partition(":") for each in arguments.only]
    if unknown := {script for script, _, _ in chosen} - set(NAMES):
        parser.error(f"no script is called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    done = [] if arguments.page_only else [run_script(script, only, arguments.quick) for script, _, only in chosen]
    PAGE.write_text(write_page({script: read_results(RESULTS, script) for script in NAMES}))
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
