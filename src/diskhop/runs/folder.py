"""The RUN folder: config.toml, plan.json, metrics.jsonl, checkpoint.safetensors, model.safetensors, result.json.

config.toml is there before the first batch, and plan.json, with the machine. checkpoint.safetensors is replaced after
every epoch and is the truth: metrics.jsonl, to which a line is added without waiting for the disk, is written anew from
it on resuming and at the end. model.safetensors (the best model) and result.json end a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diskhop.config.embed import EmbedConfig
from diskhop.config.options import SavedRun, differing_options, dump_config, load_config, options_of
from diskhop.config.train import KINDS, TrainConfig
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, DestinationError
from diskhop.io.atomic import Injector, destination_errors, make_directories, write_file
from diskhop.plans import RunPlan
from diskhop.run_files import CONFIG_FILE, METRICS_FILE, PLAN_FILE, RESULT_FILE
from diskhop.runs.checkpoint import TrainingState, load_state, save_state, save_tensors
from diskhop.system.machine import describe_machine


class RunFolder:
    """What every run leaves: how it is repeated, a line for each epoch, and what it found."""

    def __init__(self, path: Path, injector: Injector | None = None) -> None:
        self.path = path
        self._injector = injector

    @property
    def config_path(self) -> Path:
        """What repeats the run."""
        return self.path / CONFIG_FILE

    def start(self, config: TrainConfig | EmbedConfig, dataset: Dataset) -> None:
        """Make the folder, which must be new or empty."""
        require_new_folder(self.path)
        make_directories(self.path, self._injector)
        content = dump_config(config, str(dataset.path.resolve()), dataset.hash)
        write_file(self.config_path, content.encode(), self._injector)

    def write_plan(self, plan: RunPlan) -> None:
        """Write what will run, and on which machine."""
        content = {"plan": plan.to_dict(), "machine": describe_machine()}
        write_file(self.path / PLAN_FILE, (json.dumps(content, indent=1) + "\n").encode(), self._injector)

    def add_metrics(self, record: Mapping[str, Any]) -> None:
        """Add an epoch's line, without waiting for the disk."""
        metrics = self.path / METRICS_FILE
        with destination_errors(metrics), metrics.open("a", encoding="utf-8") as file:
            file.write(_to_line(record))

    def write_metrics(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Write all lines anew."""
        write_file(self.path / METRICS_FILE, "".join(map(_to_line, history)).encode(), self._injector)

    def write_result(self, history: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> None:
        """Write what was found; nothing is added after it."""
        self.write_metrics(history)
        write_file(self.path / RESULT_FILE, (json.dumps(result, indent=1) + "\n").encode(), self._injector)


class ModelFolder(RunFolder):
    """Where a run of training leaves what it finds."""

    def resume(self, config: TrainConfig, dataset: Dataset) -> TrainingState | None:
        """Check that this is the same run and return where it stands; None: before its first commit."""
        require_same_run(self.config_path, load_config(self.config_path, KINDS), config, dataset)
        checkpoint = self.path / "checkpoint.safetensors"
        state = load_state(checkpoint) if checkpoint.exists() else None
        self.write_metrics(state.history if state else [])
        return state

    def commit(self, state: TrainingState) -> None:
        """Keep an epoch, whatever happens next; its record is the last of the state's history."""
        save_state(self.path / "checkpoint.safetensors", state, self._injector)
        self.add_metrics(state.history[-1])

    def finish(self, state: TrainingState, config: TrainConfig, result: Mapping[str, Any]) -> None:
        """Write the best model and what was found."""
        save_tensors(self.path / "model.safetensors", state.best_model, {"model": config.model}, self._injector)
        self.write_result(state.history, result)


def require_new_folder(path: Path) -> None:
    """Refuse a file, or a folder that has more in it than a start that was cut short."""
    with destination_errors(path):
        if path.exists() and not (path.is_dir() and all(entry.suffix == ".partial" for entry in path.iterdir())):
            raise DestinationError(
                f"{path}: already exists and is not empty; name another --out, or go on with --resume"
            )


def require_same_dataset(config_path: Path, dataset_hash: str, dataset: Dataset) -> None:
    """Refuse a configuration that was saved for other data."""
    if dataset_hash and dataset_hash != dataset.hash:
        raise ConfigError(
            f"{config_path}: is for the dataset with hash {dataset_hash}, {dataset.path} has {dataset.hash}; "
            "name the dataset of that run, or train without this file"
        )


def require_same_run(config_path: Path, saved: SavedRun, config: Any, dataset: Dataset) -> None:
    """Refuse to go on with a run that was of other data or other options than this configuration's."""
    require_same_dataset(config_path, saved.dataset_hash, dataset)
    missing = [name for name in options_of(type(config)) if name not in saved.options]
    if missing:
        raise ConfigError(
            f"{config_path}: --resume needs every option of the run, but {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing; put the line back, or train into a new folder"
        )
    different = differing_options(saved.options, config)
    if different:
        raise ConfigError(
            f"{config_path}: --resume goes on with the same options, but {', '.join(different)} differ; "
            "leave them out, or train into a new folder"
        )


def _to_line(record: Mapping[str, Any]) -> str:
    return json.dumps(record) + "\n"
