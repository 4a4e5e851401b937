"""What runs left in their folders, read for a report: of runs that are done, that go on, or that were killed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from diskhop.config.options import read_toml
from diskhop.errors import ConfigError
from diskhop.run_files import CONFIG_FILE, METRICS_FILE, PLAN_FILE, RESULT_FILE
from diskhop.runs.result import describe_protocol


@dataclass(frozen=True, eq=False)
class RunRecord:
    """config: as in config.toml; epochs: records of those that are done; plan, machine, result: None where missing."""

    path: Path
    config: Mapping[str, Any]
    epochs: list[dict[str, Any]]
    plan: Mapping[str, Any] | None
    machine: Mapping[str, Any] | None
    result: Mapping[str, Any] | None

    @property
    def is_embedding(self) -> bool:
        """Whether it is of 'diskhop embed', not of 'diskhop train'."""
        return "partitions" in self.config

    @property
    def dataset(self) -> str:
        """Its name, or its folder's while the run is not done."""
        return str(self.result["dataset"]) if self.result else Path(str(self.config.get("dataset", "?"))).name

    @property
    def loss(self) -> str:
        """What loss means in this run: losses of different names are not to be compared."""
        return f"{self.config['loss']} loss of edges" if self.is_embedding else "cross-entropy"

    @cached_property
    def valid_metric(self) -> str | None:
        """What validation measured, with its protocol; None: nothing."""
        measured = next((epoch for epoch in reversed(self.epochs) if epoch.get("valid") is not None), None)
        return None if measured is None else self._metric(measured.get("validation"))

    @property
    def test(self) -> tuple[str, float] | None:
        """The metric, with its protocol, and its value on test edges or nodes."""
        found = self.result.get("test") if self.result else None
        if found is None:
            return None
        return (self._metric(found), found["mrr"]) if self.is_embedding else (self._metric(None), found)

    @property
    def best_valid(self) -> float | None:
        """The best of all validations."""
        return max((epoch["valid"] for epoch in self.epochs if epoch.get("valid") is not None), default=None)

    def _metric(self, measured: Mapping[str, Any] | None) -> str:
        if self.is_embedding and measured is not None:
            return f"MRR ({describe_protocol(measured['protocol'])})"
        return str(self.config.get("metric", "metric"))


def read_run(path: Path | str) -> RunRecord:
    """Read what a run has left so far. Raises ConfigError for a folder that has no run, or files that are damaged."""
    path = Path(path)
    config_path = path / CONFIG_FILE
    if not config_path.exists():
        raise ConfigError(
            f"{path}: is no run, {CONFIG_FILE} is missing; name a folder that 'diskhop train' or 'embed' made"
        )
    planned = _read_json(path / PLAN_FILE) or {}
    result = _read_json(path / RESULT_FILE)
    plan = result["plan"] if result and "plan" in result else planned.get("plan")
    return RunRecord(path, read_toml(config_path), _read_epochs(path), plan, planned.get("machine"), result)


def _read_json(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path}: is damaged: {error}; go on with the run by --resume, or leave it out") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: is damaged: must be an object; go on with the run by --resume, or leave it out")
    return content


def _read_epochs(path: Path) -> list[dict[str, Any]]:
    metrics = path / METRICS_FILE
    if not metrics.exists():
        return []
    lines = metrics.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()  # the process was ended while it wrote
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise ConfigError(f"{metrics}: is damaged: {error}; go on with the run by --resume, or leave it out") from error
