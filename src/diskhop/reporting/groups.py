"""Runs that differ only in their random seed, as one: what they are called, and what several such groups differ in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from diskhop.budget import format_bytes
from diskhop.reporting.records import RunRecord
from diskhop.reporting.values import Table, shown_value

# A run with its name.
_Named = tuple[RunRecord, str]

# Options that a run without them takes from what the machine has free: runs of one command may differ in them.
_OF_THE_MACHINE = ("memory_bytes", "disk_bytes")
# Where a run's files are; the dataset's content is compared instead.
_PLACES = ("dataset", "scratch")


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs with the same options, each with its own seed; or a run alone.

    name: of the run; of several, what their names have in common.
    runs: at least one.
    """

    name: str
    runs: Sequence[RunRecord]

    @property
    def first(self) -> RunRecord:
        """The run that stands for all where they are the same."""
        return self.runs[0]

    @property
    def num_seeds(self) -> int:
        """Number of runs."""
        return len(self.runs)

    @property
    def title(self) -> str:
        """The name, with the number of seeds where there are several."""
        return self.name if len(self.runs) == 1 else f"{self.name} ({len(self.runs)} seeds)"


def group_runs(runs: Sequence[RunRecord], names: Sequence[str]) -> list[RunGroup]:
    """Group runs that differ only in their seed, in the order of the first run of each group."""
    alike = _split(list(zip(runs, names, strict=True)), ("seed", *_PLACES, *_OF_THE_MACHINE))
    groups = [group for pairs in alike for group in _divide(pairs)]
    titles = _titles([[name for _, name in group] for group in groups])
    return [RunGroup(title, [run for run, _ in group]) for title, group in zip(titles, groups, strict=True)]


def comparison_table(groups: Sequence[RunGroup]) -> Table | None:
    """Return what groups of runs differ in and what they reached, a row for each; None for a single run."""
    if sum(group.num_seeds for group in groups) < 2:
        return None
    columns = {"run": [group.name for group in groups], "seeds": [str(group.num_seeds) for group in groups]}
    columns |= {name.removesuffix("_bytes").replace("_", " "): each for name, each in _differing(groups).items()}
    results = [_results(group) for group in groups]
    columns |= {name: [each[name] for each in results] for name in results[0] if any(each[name] for each in results)}
    return Table(list(columns), list(zip(*columns.values(), strict=True)))


def mean_text(values: Sequence[float], form: str, unit: str = "") -> str:
    """Return the mean of values, with their sample standard deviation where there are several; '' without any."""
    if not values:
        return ""
    spread = "" if len(values) < 2 else f" ± {np.std(values, ddof=1):{form}}"
    return f"{np.mean(values):{form}}{spread}{unit}"


def _divide(pairs: list[_Named]) -> list[list[_Named]]:
    """Divide runs further, unless each has its own seed."""
    if _have_different_seeds(pairs):
        return [pairs]
    return [
        group
        for alike in _split(pairs, ("seed", *_PLACES))
        for group in ([alike] if _have_different_seeds(alike) else [[each] for each in alike])
    ]


def _split(pairs: Sequence[_Named], without: Sequence[str]) -> list[list[_Named]]:
    """Group runs whose options are equal, without some of them."""
    found: dict[str, list[_Named]] = defaultdict(list)
    for run, name in pairs:
        options = {option: value for option, value in run.config.items() if option not in without}
        found[repr(sorted(options.items()))].append((run, name))
    return list(found.values())


def _have_different_seeds(pairs: Sequence[_Named]) -> bool:
    return len({run.config.get("seed") for run, _ in pairs}) == len(pairs)


def _titles(groups: Sequence[Sequence[str]]) -> list[str]:
    """Return what the names of each group begin with, as a shell's pattern; the first name where that says nothing."""
    found = [names[0] if len(names) == 1 else f"{_common_start(names)}*" for names in groups]
    return [
        f"{names[0]}, ..." if title == "*" or found.count(title) > 1 else title
        for names, title in zip(groups, found, strict=True)
    ]


def _common_start(names: Sequence[str]) -> str:
    return "".join(letters[0] for letters in takewhile(lambda each: len(set(each)) == 1, zip(*names, strict=False)))


def _differing(groups: Sequence[RunGroup]) -> dict[str, list[str]]:
    """Return the options that all groups have and that are not the same in all, with the value of each group."""
    configs = [{**group.first.config, "dataset": group.first.dataset} for group in groups]
    names = [name for name in configs[0] if name not in ("seed", "scratch")]
    shared = [name for name in names if all(name in config for config in configs)]
    columns = {name: [shown_value(name, config[name]) for config in configs] for name in shared}
    differing = {name: column for name, column in columns.items() if len(set(column)) > 1}
    # Datasets of one name with other content.
    if "dataset" in differing:
        differing.pop("dataset_hash", None)
    return differing


def _results(group: RunGroup) -> dict[str, str]:
    """Return what a group reached, '' where that is unknown."""
    runs = group.runs
    valid = [run.best_valid for run in runs if run.best_valid is not None]
    tests = [run.test[1] for run in runs if run.test is not None]
    metric = next((run.valid_metric for run in runs if run.valid_metric is not None), "")
    tested = next((run.test[0] for run in runs if run.test is not None), "")
    epochs = [len(run.epochs) for run in runs]
    seconds = [sum(epoch["seconds"] for epoch in run.epochs) / len(run.epochs) for run in runs if run.epochs]
    peaks = [run.result["peak_rss_bytes"] for run in runs if run.result]
    return {
        "best validation": _measured(valid, group, metric),
        "test": _measured(tests, group, tested),
        "epochs done": str(epochs[0]) if len(set(epochs)) == 1 else f"{min(epochs)} to {max(epochs)}",
        "time per epoch": mean_text(seconds, ".3g", " s"),
        "peak memory": format_bytes(max(peaks)) if peaks else "",
    }


def _measured(values: Sequence[float], group: RunGroup, metric: str) -> str:
    """Return a mean with its metric, and how many runs have it if not all of them do."""
    if not values:
        return ""
    missing = "" if len(values) == group.num_seeds else f", {len(values)} of {group.num_seeds} runs"
    return f"{mean_text(values, '.4f')} {metric}{missing}"
