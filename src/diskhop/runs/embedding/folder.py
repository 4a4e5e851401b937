"""The RUN folder of embeddings: config.toml, partitions/, relations, commit.json, metrics.jsonl, result.json.

commit.json is the truth: how far training is, which version of each partition and which file of relations belong
together, and the history. It is replaced in one step after all that it names is on the disk; metrics.jsonl is written
anew from it on resuming and at the end.
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

from diskhop.config.embed import EmbedConfig
from diskhop.config.options import load_config
from diskhop.dataset.dataset import Dataset
from diskhop.embedding.partitions.store import Version
from diskhop.errors import TrainingError
from diskhop.io.atomic import write_file
from diskhop.io.checksums import json_checksum
from diskhop.runs.checkpoint import load_tensors, save_tensors
from diskhop.runs.folder import RunFolder, require_same_run

_VERSION = 1
COMMIT_FILE = "commit.json"


@dataclass(slots=True, eq=False)
class Commit:
    """Where a run stands: of epoch `epoch` `passes` passes and `states` states of the next are trained.

    sums: of what the epoch found so far. dealt: how often nodes were dealt to partitions anew. partitions: the version
    of each. relations: which of two files has them. history: a record for each epoch done.
    """

    epoch: int
    passes: int
    states: int
    dealt: int
    sums: dict[str, Any]
    partitions: list[Version]
    relations: int
    history: list[dict[str, Any]] = field(default_factory=list)


class EmbeddingFolder(RunFolder):
    """Where a run leaves what it finds, and what it goes on from."""

    @property
    def partitions(self) -> Path:
        """The folder of the partitions."""
        return self.path / "partitions"

    @contextmanager
    def edges(self) -> Iterator[Path]:
        """A folder for the edges, which goes with what is in it; one that an earlier process left is used again."""
        path = self.path / "edges"
        path.mkdir(exist_ok=True)
        try:
            yield path
        finally:
            shutil.rmtree(path)

    def resume(self, config: EmbedConfig, dataset: Dataset) -> Commit | None:
        """Check that this is the same run and return where it stands; None: before its first commit."""
        require_same_run(self.config_path, load_config(self.config_path, (EmbedConfig,)), config, dataset)
        commit = self.read_commit()
        self.write_metrics(commit.history if commit else [])
        return commit

    def read_commit(self) -> Commit | None:
        """Where a run stands; None: before its first commit. Raises TrainingError for a file that is damaged."""
        path = self.path / COMMIT_FILE
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_bytes())
            is_whole = content.pop("checksum") == json_checksum(content) and content.pop("version") == _VERSION
            content["partitions"] = [Version(*version) for version in content["partitions"]]
            commit = Commit(**content)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TrainingError(f"{path}: cannot be gone on from: {error}; train again in a new folder") from error
        if not is_whole:
            raise TrainingError(f"{path}: is damaged: its checksum does not fit; train again in a new folder")
        return commit

    def save_relations(self, number: int, tensors: Mapping[str, Tensor]) -> None:
        """Write a file of relations that no commit names."""
        save_tensors(self._relations_path(number), tensors, {}, self._injector)

    def load_relations(self, number: int) -> dict[str, Tensor]:
        """What save_relations() wrote."""
        return load_tensors(self._relations_path(number))[0]

    def commit(self, commit: Commit, *, is_epoch: bool) -> None:
        """Keep what the commit names, all of which is on the disk, whatever happens next."""
        content = {"version": _VERSION, **asdict(commit)}
        content["partitions"] = [list(version) for version in commit.partitions]
        document = {**content, "checksum": json_checksum(content)}
        write_file(self.path / COMMIT_FILE, (json.dumps(document) + "\n").encode(), self._injector)
        if is_epoch:
            self.add_metrics(commit.history[-1])

    def _relations_path(self, number: int) -> Path:
        return self.path / f"relations-{'ab'[number]}.safetensors"
