"""diskhop.inspect(): what is in a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskhop.api.pages import page_row
from diskhop.budget import Budget, parse_bytes
from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.dataset.statistics.measure import measure_dataset
from diskhop.dataset.verify import describe
from diskhop.display import Display, Facts, Part
from diskhop.errors import ConfigError
from diskhop.runtime.progress import Progress, silent
from diskhop.system.memory import default_memory_bytes
from diskhop.ui.facts import fact_rows


@dataclass(frozen=True, slots=True, repr=False)
class Inspected(Display):
    """The contents of a dataset.

    facts: counts, degrees, dtypes, splits, labels and files, as `diskhop inspect --json` prints them.
    page: the HTML page that was written; None without one.
    """

    facts: dict[str, Any]
    page: Path | None = None

    def _title(self) -> str:
        return f"Dataset {self.facts['name']}"

    def _parts(self) -> Sequence[Part]:
        shown = Facts(list(fact_rows({name: fact for name, fact in self.facts.items() if name != "schema"})))
        return [shown] if self.page is None else [shown, Facts([page_row(self.page)])]


def inspect(
    dataset: Dataset | Path | str,
    *,
    html: Path | str | None = None,
    memory: int | str | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Inspected:
    """Describe the contents of a dataset.

    dataset: open, or its folder; its labels and the lengths of its neighbour lists are read.
    html: a page to write: degrees, labels, feature ranges, homophily, components, splits and types. Large graphs are
        read once from front to back, and sampled where that takes too long.
    memory: bytes or a size such as '2GB' that the page's statistics may take; default: half of the free memory.
    overwrite: whether a page that is there is replaced.
    progress: called with a stage, and what is done of it and in total.

    Raises ConfigError, DestinationError, BudgetError below 64 MiB.

    >>> print(diskhop.inspect("my-graph"))
    Dataset ...
    """
    opened = as_dataset(dataset)
    if html is None:
        if memory is not None or overwrite:
            word = "memory" if memory is not None else "overwrite"
            raise ConfigError(f"--{word} is of the page; add --html {opened.path.resolve().name}.html, or remove it")
        return Inspected(describe(opened))
    # jinja2 and plotly's files, which a look in a terminal does without.
    from diskhop.reporting.dataset_page import render_dataset
    from diskhop.reporting.html import require_page, write_page

    path = Path(html)
    require_page(path, "--html", overwrite=overwrite)
    memory_bytes = parse_bytes(memory) if isinstance(memory, str) else memory
    budget = Budget(default_memory_bytes() if memory_bytes is None else memory_bytes)
    statistics = measure_dataset(opened, budget, progress)
    facts = describe(opened)
    write_page(render_dataset(opened, facts, statistics), path, overwrite=overwrite)
    return Inspected(facts, path)
