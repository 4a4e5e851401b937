"""diskhop.clean(): the command `diskhop clean`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diskhop.budget import format_bytes
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.files import read_manifest
from diskhop.derived.clean import DerivedEntry, list_derived, remove_unused
from diskhop.display import Display, Facts, Part, Row
from diskhop.errors import ConfigError


@dataclass(frozen=True, slots=True, repr=False)
class Cleaned(Display):
    """Derived files, and what became of each.

    folder: where they lie.
    entries: all entries of the folder.
    is_dry_run: whether nothing was removed.
    """

    folder: Path
    entries: tuple[DerivedEntry, ...]
    is_dry_run: bool

    @property
    def removable(self) -> list[DerivedEntry]:
        """The entries that were removed, or would have been in a dry run."""
        return [each for each in self.entries if (each.kept_because is None if self.is_dry_run else each.is_removed)]

    @property
    def num_bytes(self) -> int:
        """Disk space of the removable entries."""
        return sum(entry.num_bytes or 0 for entry in self.removable)

    def rows(self) -> list[Row]:
        """Return a row per entry, and one for all."""
        if not self.entries:
            return []
        outcome = "would be removed" if self.is_dry_run else "removed"
        total = f"{len(self.removable)} of {len(self.entries)}, {format_bytes(self.num_bytes)}"
        return [*((each.path.name, _outcome(each, outcome)) for each in self.entries), (outcome, total)]

    def _title(self) -> str:
        return f"{self.folder}" if self.entries else f"{self.folder}: there are no derived files"

    def _parts(self) -> Sequence[Part]:
        return [Facts(self.rows())]


def clean(dataset: Dataset | Path | str, *, scratch: Path | str | None = None, dry_run: bool = False) -> Cleaned:
    """List derived files (traces, packed batches, hop tables) and remove those that no run uses.

    dataset: open, or its folder.
    scratch: the scratch folder of runs, whatever their dataset; default: DATASET/derived.
    dry_run: list them, remove nothing.

    Raises ConfigError for a missing folder, DestinationError if the system refuses.

    >>> print(diskhop.clean("my-graph", dry_run=True))
    my-graph...
    """
    path = dataset.path if isinstance(dataset, Dataset) else Path(dataset)
    read_manifest(path)
    if scratch and not Path(scratch).exists():
        raise ConfigError(f"{scratch}: there is no such folder; give --scratch as the run had it, or leave it out")
    folder = Path(scratch) if scratch else path / "derived"
    entries = list_derived(folder)
    return Cleaned(folder, tuple(entries if dry_run else remove_unused(entries)), dry_run)


def _outcome(entry: DerivedEntry, outcome: str) -> str:
    if entry.num_bytes is None:
        return f"{entry.what}: left alone"
    kept = None if entry.kept_because is None else f"kept: {entry.kept_because}"
    return f"{entry.what}, {format_bytes(entry.num_bytes)}, {kept or outcome}"
