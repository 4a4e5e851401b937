"""Reading RUN folders for a report: of runs that are done, still training, or killed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from diskhop.config.options import read_toml, require_known
from diskhop.errors import ConfigError
from diskhop.run_files import (
    COMMANDS,
    CONFIG_FILE,
    EMBEDDING,
    EVALUATION_FILE,
    LINK_RUN,
    METRICS_FILE,
    PLAN_FILE,
    RESULT_FILE,
    TYPED_LINK,
    read_kind,
    resume_command,
)
from diskhop.runs.better import best_value
from diskhop.runs.result import describe_protocol


@dataclass(frozen=True, eq=False)
class RunRecord:
    """The files of a run.

    path: the RUN folder.
    kind: see run_files.
    config: the content of config.toml.
    epochs: the records of epochs that are done.
    plan, machine, result, evaluation: None where missing.
    """

    path: Path
    kind: str
    config: Mapping[str, Any]
    epochs: list[dict[str, Any]]
    plan: Mapping[str, Any] | None
    machine: Mapping[str, Any] | None
    result: Mapping[str, Any] | None
    evaluation: Mapping[str, Any] | None

    @property
    def is_embedding(self) -> bool:
        """Whether the run trains embeddings."""
        return self.kind == EMBEDDING

    @property
    def dataset(self) -> str:
        """The dataset's name, or its folder's name while the run is not done."""
        return str(self.result["dataset"]) if self.result else Path(str(self.config.get("dataset", "?"))).name

    @property
    def loss(self) -> str:
        """The name of the loss; losses of different names cannot be compared."""
        loss = str(self.config.get("loss", "cross-entropy"))
        return f"{loss} loss of edges" if self.kind in (EMBEDDING, LINK_RUN, TYPED_LINK) else loss

    @cached_property
    def valid_metric(self) -> str | None:
        """The name of the validation metric, with its protocol; None without a validation."""
        measured = next((epoch for epoch in reversed(self.epochs) if epoch.get("valid") is not None), None)
        return None if measured is None else self._metric(measured.get("validation", {}))

    @property
    def test(self) -> tuple[str, float] | None:
        """The name of the test metric, with its protocol, and its value; None without a test."""
        if not self.result or "test" not in self.result:
            return None
        found = self.result["test"]
        return self._metric(found), found[self.result["metric"]]

    @property
    def best_valid(self) -> float | None:
        """The best validation."""
        validations = [epoch["valid"] for epoch in self.epochs if epoch.get("valid") is not None]
        return best_value(str(self.config.get("metric", "")), validations)

    def _metric(self, measured: Mapping[str, Any]) -> str:
        name = "MRR" if self.is_embedding else str(self.config.get("metric", "metric"))
        if "protocol" in measured:
            return f"{name} ({describe_protocol(measured['protocol'])})"
        if "random_pairs" in measured:
            return f"{name} ({measured['edges']:,} edges, {measured['random_pairs']:,} random pairs)"
        return name


def read_run(path: Path | str) -> RunRecord:
    """Read the files of a run, done or not. Raises ConfigError for a folder without a run, and for damaged files."""
    path = Path(path)
    config_path = path / CONFIG_FILE
    if not config_path.exists():
        raise ConfigError(
            f"{path}: is no run, {CONFIG_FILE} is missing; name a folder of 'diskhop train', 'embed' or 'predict'"
        )
    kind = read_kind(config_path)
    require_known("kind of run", kind, COMMANDS, f"{config_path}: ")
    repair = f"resume the run: {resume_command(kind, path)}"
    planned = _read_json(path / PLAN_FILE, repair) or {}
    result = _read_json(path / RESULT_FILE, repair)
    plan = result["plan"] if result and "plan" in result else planned.get("plan")
    epochs = _read_epochs(path / METRICS_FILE, repair)
    evaluation = _read_json(path / EVALUATION_FILE, f"remove it, or evaluate the run again: diskhop evaluate {path}")
    return RunRecord(path, kind, read_toml(config_path), epochs, plan, planned.get("machine"), result, evaluation)


def _read_json(path: Path, repair: str) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is damaged: {error}; {repair}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: is damaged: must be an object; {repair}")
    return content


def _read_epochs(metrics: Path, repair: str) -> list[dict[str, Any]]:
    if not metrics.exists():
        return []
    lines = metrics.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()  # the process was killed while it wrote
    try:
        epochs = [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{metrics}: is damaged: {error}; {repair}") from error
    if not all(isinstance(epoch, dict) for epoch in epochs):
        raise ConfigError(f"{metrics}: is damaged: must have an object on each line; {repair}")
    return epochs
