"""diskhop.verify(): every byte of whatever has checksums, against them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from diskhop.dataset.damage import Damage
from diskhop.dataset.dataset import Dataset
from diskhop.dataset.manifest import MANIFEST_NAME
from diskhop.dataset.summed_files import verify_files
from diskhop.dataset.verify import verify as verify_dataset
from diskhop.derived.clean import CLUSTERS_FILE, LAYOUT_FILE, MERGED_FILE, NORMS_FILE, SPLIT_FILE, TABLES_FILE
from diskhop.display import Display, Facts, Part
from diskhop.io.manifests import read_manifest
from diskhop.run_files import CONFIG_FILE, PREDICTIONS_FILE
from diskhop.runtime.progress import Progress, silent

_AGAIN = "remove the folder, and it is made again"
_IMPORT = "import the graph again or copy the dataset again"


@dataclass(frozen=True, slots=True, repr=False)
class Verified(Display):
    """The outcome of a verification.

    path: the folder.
    damages: damaged ranges of files; empty if every checksum matches.
    remedy: what to do about them.
    """

    path: Path
    damages: tuple[Damage, ...]
    remedy: str = _IMPORT

    @property
    def is_whole(self) -> bool:
        """Whether every byte is what was written."""
        return not self.damages

    def _title(self) -> str:
        return f"{self.path}: " + ("every checksum matches" if self.is_whole else f"{len(self.damages)} damaged")

    def _parts(self) -> Sequence[Part]:
        return [Facts([("damaged", str(each)) for each in self.damages])] if self.damages else []


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of folder that can be verified.

    find: returns its damages. remedy: what to do about them.
    """

    find: Callable[[Path, Progress], Sequence[Damage]]
    remedy: str


def _later(module: str, name: str) -> Callable[[Path, Progress], Sequence[Damage]]:
    """Return a function that is imported when it is called: some load PyTorch."""

    def find(path: Path, progress: Progress) -> Sequence[Damage]:
        damages: Sequence[Damage] = getattr(import_module(module), name)(path, progress)
        return damages

    return find


def _summed(manifest: str, module: str, what: str) -> _Kind:
    """Return a kind of derived folder whose manifest lists its files. module: has its VERSION."""

    def find(path: Path, progress: Progress) -> Sequence[Damage]:
        content = read_manifest(path / manifest, import_module(module).VERSION, what, _AGAIN)
        return list(verify_files(path / manifest, content, _AGAIN, progress))

    return _Kind(find, _AGAIN)


# By the file that is in each folder of a kind.
_KINDS = {
    MANIFEST_NAME: _Kind(verify_dataset, _IMPORT),
    TABLES_FILE: _Kind(_later("diskhop.hops.verify", "verify_tables"), "run 'diskhop propagate' again"),
    LAYOUT_FILE: _Kind(_later("diskhop.stores.packed.verify", "verify_layout"), "run 'diskhop pack' again"),
    PREDICTIONS_FILE: _Kind(_later("diskhop.predicting.verify", "verify_predictions"), "run 'diskhop predict' again"),
    NORMS_FILE: _summed(NORMS_FILE, "diskhop.sampling.norms", "norms of GraphSAINT"),
    CLUSTERS_FILE: _summed(CLUSTERS_FILE, "diskhop.sampling.clusters", "clusters of nodes"),
    MERGED_FILE: _summed(MERGED_FILE, "diskhop.dataset.merged", "merged lists or columns"),
    SPLIT_FILE: _summed(SPLIT_FILE, "diskhop.sampling.edge_split.write", "a split of edges"),
    CONFIG_FILE: _Kind(_later("diskhop.runs.verify", "verify_run"), "copy the run again, or train again"),
}


def verify(dataset: Dataset | Path | str, *, progress: Progress = silent) -> Verified:
    """Read every byte of a dataset from disk and compare it with its checksum.

    dataset: open, or its folder. Also a folder of hop tables, packed batches, predictions or other derived files, or
        a RUN folder, of which text files have no checksums.
    progress: called with a stage, and what is done of it and in total.

    Raises FormatError if the manifest is invalid.

    >>> diskhop.verify("my-graph").is_whole
    True
    """
    path = dataset.path if isinstance(dataset, Dataset) else Path(dataset)
    kind = next((kind for name, kind in _KINDS.items() if (path / name).exists()), _KINDS[MANIFEST_NAME])
    return Verified(path, tuple(kind.find(path, progress)), kind.remedy)
