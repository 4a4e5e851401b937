"""diskhop.inspect() and diskhop.verify(): the commands that look at a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskhop.dataset.dataset import Dataset, as_dataset
from diskhop.dataset.verify import Damage, describe
from diskhop.dataset.verify import verify as find_damages
from diskhop.display import Display, Facts, Part
from diskhop.runtime.progress import Progress, silent
from diskhop.ui.facts import fact_rows


@dataclass(frozen=True, slots=True, repr=False)
class Inspected(Display):
    """The contents of a dataset.

    facts: counts, degrees, dtypes, splits, labels and files, as `diskhop inspect --json` prints them.
    """

    facts: dict[str, Any]

    def _title(self) -> str:
        return f"Dataset {self.facts['name']}"

    def _parts(self) -> Sequence[Part]:
        return [Facts(list(fact_rows({name: fact for name, fact in self.facts.items() if name != "schema"})))]


@dataclass(frozen=True, slots=True, repr=False)
class Verified(Display):
    """The outcome of a verification.

    path: the dataset.
    damages: damaged ranges of files; empty if every checksum matches.
    """

    path: Path
    damages: tuple[Damage, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every byte is what was written."""
        return not self.damages

    def _title(self) -> str:
        return f"{self.path}: " + ("every checksum matches" if self.is_whole else f"{len(self.damages)} damaged")

    def _parts(self) -> Sequence[Part]:
        return [Facts([("damaged", str(each)) for each in self.damages])] if self.damages else []


def inspect(dataset: Dataset | Path | str) -> Inspected:
    """Describe the contents of a dataset.

    dataset: open, or its folder; its labels and the lengths of its neighbour lists are read.
    """
    return Inspected(describe(as_dataset(dataset)))


def verify(dataset: Dataset | Path | str, *, progress: Progress = silent) -> Verified:
    """Read every byte of a dataset from disk and compare it with its checksum.

    dataset: open, or its folder.
    progress: called with a stage, and what is done of it and in total.

    Raises FormatError if the manifest is invalid.
    """
    path = dataset.path if isinstance(dataset, Dataset) else Path(dataset)
    return Verified(path, tuple(find_damages(path, progress)))
