"""Results of the papers' scripts: figures of a paper next to ours, kept as one JSON file for each experiment.

An experiment is a key of a script's EXPERIMENTS and finds one figure or a few. A page of figures that were measured at
different times is written from the newest file of each; a whole run counts more than a quick one.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

# Ours counts as reproduced from this share of the paper's figure on, and as better from its inverse.
REPRODUCED = 0.9


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure of a paper next to ours.

    figure: its name in the paper, as in papers_page.py.
    claim: what the figures are, with their unit.
    ours: our figure; NaN for a run that failed.
    paper: the paper's on its hardware; None if it is plotted only.
    less_is_better: True if small figures are good.
    is_trait: True for what is wrong with a system that the paper compares with: more of it is not better.
    why: what was measured next to it and explains a difference.
    """

    figure: str
    claim: str
    ours: float
    paper: float | None = None
    less_is_better: bool = False
    is_trait: bool = False
    why: str = ""

    @property
    def verdict(self) -> str:
        """Return 'failed', 'plotted only', 'better' (of a trait: 'stronger'), 'reproduced' or 'not'."""
        if math.isnan(self.ours):
            return "failed"
        if self.paper is None:
            return "plotted only"
        if self.less_is_better:
            better = self.paper / self.ours if self.ours > 0 else math.inf
        else:
            better = self.ours / self.paper
        if better > 1 / REPRODUCED:
            return "stronger" if self.is_trait else "better"
        return "reproduced" if better >= REPRODUCED else "not"


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure as the paper draws it.

    figure: its name in the paper, as in papers_page.py; part: what of it is drawn, '' for all.
    kind: 'bars', in groups by x, or 'lines'.
    y: what is drawn, with its unit.
    series: values by name and by point of x, in order; NaN where there is none.
    """

    figure: str
    part: str
    kind: str
    x: str
    y: str
    points: tuple[str, ...]
    series: Mapping[str, tuple[float, ...]]
    is_logarithmic: bool = False


class Bench(Protocol):
    """Results of an experiment, which adds to them.

    findings: its figures next to the paper's, in order.
    plots: its figures as the paper draws them.
    """

    findings: list[Finding]
    plots: list[Plot]


@dataclass
class Results:
    """Results of one experiment; see Bench."""

    findings: list[Finding]
    plots: list[Plot]


def draw(
    bench: Bench,
    figure: str,
    part: str,
    x: str,
    y: str,
    series: Mapping[str, Mapping[str, float]],
    *,
    kind: str = "bars",
    is_logarithmic: bool = False,
) -> None:
    """Add a plot. series: values by name and by point; the points are those of the first."""
    points = tuple(next(iter(series.values()), {}))
    values = {name: tuple(of.get(point, math.nan) for point in points) for name, of in series.items()}
    bench.plots.append(Plot(figure, part, kind, x, y, points, values, is_logarithmic))


def add_options(parser: argparse.ArgumentParser, experiments: Iterable[str]) -> None:
    """Add the options of run_experiments(), --only, --keep and --json."""
    names = tuple(experiments)

    def read_names(text: str) -> tuple[str, ...]:
        chosen = tuple(text.split(","))
        if unknown := set(chosen) - set(names):
            raise argparse.ArgumentTypeError(
                f"no experiment is called {', '.join(sorted(unknown))}; there are {', '.join(names)}"
            )
        return chosen

    parser.add_argument("--only", type=read_names, default=names, help=f"default: all, {','.join(names)}")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="a JSON file here for each experiment that ended")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout, the tables on stderr")


def leave_out(arguments: argparse.Namespace, names: Collection[str], source: Path, out: Callable[[str], None]) -> None:
    """Leave out experiments whose graph is not there, and say so."""
    if not source.exists() and (missing := [name for name in arguments.only if name in names]):
        arguments.only = tuple(name for name in arguments.only if name not in names)
        out(f"{source}: is not there, {', '.join(missing)} left out; name the folder of real graphs with --source")


AnyBench = TypeVar("AnyBench", bound=Bench)


def run_experiments(
    benchmark: str,
    experiments: Mapping[str, Callable[[AnyBench], None]],
    bench: AnyBench,
    arguments: argparse.Namespace,
    trainer: str = "",
) -> None:
    """Run the experiments that were chosen, and keep the results of each as soon as it has ended."""
    for name in arguments.only:
        started, num_findings, num_plots = time.monotonic(), len(bench.findings), len(bench.plots)
        experiments[name](bench)
        if arguments.keep is not None:
            keep_results(
                arguments.keep,
                benchmark,
                name,
                Results(bench.findings[num_findings:], bench.plots[num_plots:]),
                is_quick=arguments.quick,
                trainer=trainer,
                hours=(time.monotonic() - started) / 3600,
            )


def keep_results(
    folder: Path, benchmark: str, experiment: str, results: Results, *, is_quick: bool, trainer: str, hours: float
) -> None:
    """Write an experiment's results, in place of those of the same size."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "benchmark": benchmark,
        "experiment": experiment,
        "quick": is_quick,
        "trainer": trainer,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hours": round(hours, 4),
        "findings": _documents(results.findings),
        "plots": [asdict(plot) for plot in results.plots],
    }
    path = folder / f"{benchmark}-{experiment}{'-quick' if is_quick else ''}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")


def read_results(folder: Path, benchmark: str) -> dict[str, dict[str, Any]]:
    """Return by figure the results that count: of a whole run rather than of a quick one, then the newest."""
    documents = [json.loads(path.read_bytes()) for path in sorted(folder.glob(f"{benchmark}-*.json"))]
    documents.sort(key=lambda each: (not each["quick"], each["date"]))
    return {finding["figure"]: document for document in documents for finding in document["findings"]}


def print_findings(benchmark: str, findings: Sequence[Finding], **more: Any) -> None:
    """Print one JSON document with the findings of a paper's script."""
    print(json.dumps({"benchmark": benchmark, "findings": _documents(findings), **more}, indent=1))


def _documents(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [{**asdict(each), "verdict": each.verdict} for each in findings]
