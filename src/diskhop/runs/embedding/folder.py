"""The state of an embedding run in its RUN folder: partitions/, relations and commit.json.

commit.json is the truth: the progress of training, which version of each partition and which file of relations belong
together, and the history. It is replaced in one step, after everything it names is on disk.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from diskhop.embedding.partitions.store import Version
from diskhop.errors import TrainingError
from diskhop.io.atomic import write_file
from diskhop.io.checksums import json_checksum
from diskhop.runs.checkpoint import load_tensors, save_tensors
from diskhop.runs.folder import RunFolder

_VERSION = 2
COMMIT_FILE = "commit.json"


@dataclass(slots=True, eq=False)
class Commit:
    """The progress of a run.

    epoch: epochs done.
    passes: passes done in the current epoch.
    states: states done in the current pass.
    dealt: number of the current assignment of nodes to partitions.
    sums: loss, edges, seconds and counts of the current epoch so far, of each rank.
    partitions: the committed version of each partition.
    relations: which of the two relation files is committed, 0 or 1.
    history: a record per epoch done.
    """

    epoch: int
    passes: int
    states: int
    dealt: int
    sums: list[dict[str, Any]]
    partitions: list[Version]
    relations: int
    history: list[dict[str, Any]] = field(default_factory=list)


class EmbeddingFolder(RunFolder[Commit]):
    """The folder of an embedding run; commit.json is the state."""

    @property
    def partitions(self) -> Path:
        """The folder of the partitions."""
        return self.path / "partitions"

    @contextmanager
    def edges(self, is_writer: bool) -> Iterator[Path]:
        """Open a folder for edges, removed at the end with its content; one left by an earlier process is reused.

        is_writer: whether this process, of all that read the edges, makes and removes the folder.
        """
        path = self.path / "edges"
        if is_writer:
            path.mkdir(exist_ok=True)
        try:
            yield path
        finally:
            if is_writer:
                shutil.rmtree(path)

    def read_state(self) -> Commit | None:
        """See RunFolder."""
        path = self.path / COMMIT_FILE
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_bytes())
            is_whole = content.pop("checksum") == json_checksum(content) and content.pop("version") == _VERSION
            content["partitions"] = [Version(*version) for version in content["partitions"]]
            commit = Commit(**content)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise TrainingError(f"{path}: cannot resume: {error}; train again in a new folder") from error
        if not is_whole:
            raise TrainingError(f"{path}: is damaged: its checksum does not fit; train again in a new folder")
        return commit

    def save_relations(self, number: int, tensors: Mapping[str, Tensor]) -> None:
        """Write the relation file that the last commit does not name."""
        save_tensors(self._relations_path(number), tensors, {}, self._injector)

    def load_relations(self, number: int) -> dict[str, Tensor]:
        """Read what save_relations() wrote."""
        return load_tensors(self._relations_path(number))[0]

    def _write_state(self, state: Commit) -> None:
        content = {"version": _VERSION, **asdict(state)}
        content["partitions"] = [list(version) for version in state.partitions]
        document = {**content, "checksum": json_checksum(content)}
        write_file(self.path / COMMIT_FILE, (json.dumps(document) + "\n").encode(), self._injector)

    def _relations_path(self, number: int) -> Path:
        return self.path / f"relations-{'ab'[number]}.safetensors"
