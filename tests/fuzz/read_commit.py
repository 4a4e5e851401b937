"""commit.json of an embedding run, with its checksum, and the records of a run that reports read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from diskhop.embedding.partitions.store import Version
from diskhop.errors import ConfigError, TrainingError
from diskhop.io.checksums import json_checksum
from diskhop.reporting.records import read_run
from diskhop.runs.embedding.folder import COMMIT_FILE, Commit, EmbeddingFolder
from tests.fuzz.forge import with_json_checksum
from tests.fuzz.target import Target


def read(content: bytes, folder: Path) -> None:
    (folder / "config.toml").write_text('kind = "embedding"\n')
    for name in ("result.json", "metrics.jsonl", "plan.json", "evaluation.json"):
        (folder / name).write_bytes(content)
    refused: Exception | None = None
    try:
        read_run(folder)
    except ConfigError as error:
        refused = error
    document = with_json_checksum(content)
    (folder / COMMIT_FILE).write_bytes(document)
    EmbeddingFolder(folder).read_state()
    if refused is not None:
        raise refused


def seeds(folder: Path) -> Sequence[bytes]:
    commit = Commit(1, 0, 2, 1, [{"loss": 1.5}], [Version(0, 1, 2), Version(1, 0, 7)], 0, [{"epoch": 0}])
    content = {"version": 2, **asdict(commit)}
    content["partitions"] = [list(version) for version in commit.partitions]
    lines = b'{"epoch": 0, "loss": 1.5}\n{"epoch": 1}\n'
    return [json.dumps({**content, "checksum": json_checksum(content)}).encode(), lines, b'{"plan": {"store": "x"}}\n']


TARGET = Target(
    name="commit", read=read, errors=(TrainingError, ConfigError), seeds=seeds, words=(b'"version": 2', b'"history":')
)
