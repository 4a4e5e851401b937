"""The RUN folder of embeddings: config.toml, partitions/, relations, commit.json, metrics.jsonl, result.json.

commit.json is the truth: how far training is, which version of each partition and which file of relations belong
together, and the history. It is replaced in one step after all that it names is on the disk; metrics.jsonl is written
anew from it on resuming and at the end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import xxhash
from torch import Tensor

from diskhop.config import dump_config, load_config
from diskhop.dataset.dataset import Dataset
from diskhop.embed_config import EmbedConfig
from diskhop.embedding.store import Version
from diskhop.errors import TrainingError
from diskhop.io.atomic import Injector, destination_errors, make_directories, write_file
from diskhop.training.checkpoint import load_tensors, save_tensors
from diskhop.training.run_folder import CONFIG_FILE, require_new_folder, require_same_run, to_line

_VERSION = 1
COMMIT_FILE = "commit.json"


@dataclass(slots=True, eq=False)
class Commit:
    """Where a run stands: `states` states of epoch `epoch` are trained; sums: of what the epoch found so far.

    partitions: the version of each. relations: which of two files has them. history: a record for each epoch done.
    """

    epoch: int
    states: int
    sums: dict[str, Any]
    partitions: list[Version]
    relations: int
    history: list[dict[str, Any]] = field(default_factory=list)


class EmbedFolder:
    """Where a run leaves what it finds, and what it goes on from."""

    def __init__(self, path: Path, injector: Injector | None = None) -> None:
        self.path = path
        self.partitions = path / "partitions"
        self._injector = injector

    def start(self, config: EmbedConfig, dataset: Dataset) -> None:
        """Make the folder, which must be new or empty."""
        require_new_folder(self.path)
        make_directories(self.path, self._injector)
        content = dump_config(config, str(dataset.path.resolve()), dataset.hash)
        write_file(self.path / CONFIG_FILE, content.encode(), self._injector)

    def resume(self, config: EmbedConfig, dataset: Dataset) -> Commit | None:
        """Check that this is the same run and return where it stands; None: before its first commit."""
        path = self.path / CONFIG_FILE
        require_same_run(path, load_config(path, (EmbedConfig,)), config, dataset)
        commit = self.read_commit()
        self._write_metrics(commit.history if commit else [])
        return commit

    def read_commit(self) -> Commit | None:
        """Where a run stands; None: before its first commit. Raises TrainingError for a file that is damaged."""
        path = self.path / COMMIT_FILE
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_bytes())
            is_whole = content.pop("checksum") == _checksum(content) and content.pop("version") == _VERSION
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
        document = {**content, "checksum": _checksum(content)}
        write_file(self.path / COMMIT_FILE, (json.dumps(document) + "\n").encode(), self._injector)
        if is_epoch:
            metrics = self.path / "metrics.jsonl"
            with destination_errors(metrics), metrics.open("a", encoding="utf-8") as file:
                file.write(to_line(commit.history[-1]))

    def finish(self, history: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> None:
        """Write what was found."""
        self._write_metrics(history)
        write_file(self.path / "result.json", (json.dumps(result, indent=1) + "\n").encode(), self._injector)

    def _relations_path(self, number: int) -> Path:
        return self.path / f"relations-{'ab'[number]}.safetensors"

    def _write_metrics(self, history: Sequence[Mapping[str, Any]]) -> None:
        write_file(self.path / "metrics.jsonl", "".join(map(to_line, history)).encode(), self._injector)


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"{xxhash.xxh3_64_intdigest(text.encode()):016x}"
