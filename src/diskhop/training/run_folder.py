"""The RUN folder: config.toml, metrics.jsonl, checkpoint.safetensors, model.safetensors, result.json.

config.toml is there before the first batch. checkpoint.safetensors is replaced after every epoch and is the truth: what
metrics.jsonl says of later epochs is dropped on resuming. model.safetensors (the best model) and result.json end a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from diskhop.config import TrainConfig, differing_options, dump_config, load_config
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, DestinationError
from diskhop.io.atomic import Injector, destination_errors, write_file
from diskhop.training.checkpoint import TrainingState, load_state, save_state, save_tensors

CONFIG_FILE = "config.toml"


class RunFolder:
    """Where a run leaves what it finds."""

    def __init__(self, path: Path, injector: Injector | None = None) -> None:
        self.path = path
        self._injector = injector

    @property
    def config_path(self) -> Path:
        """What repeats the run."""
        return self.path / CONFIG_FILE

    def start(self, config: TrainConfig, dataset: Dataset) -> None:
        """Make the folder, which must be new or empty."""
        require_new_folder(self.path)
        with destination_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        content = dump_config(config, str(dataset.path.resolve()), dataset.hash)
        write_file(self.config_path, content.encode(), self._injector)

    def resume(self, config: TrainConfig, dataset: Dataset) -> TrainingState | None:
        """Check that this is the same run and return where it stands; None: before its first commit."""
        saved = load_config(self.config_path)
        require_same_dataset(self.config_path, saved.dataset_hash, dataset)
        different = differing_options(TrainConfig(**saved.options), config)
        if different:
            raise ConfigError(
                f"{self.config_path}: --resume goes on with the same options, but {', '.join(different)} differ; "
                "leave them out, or train into a new folder"
            )
        checkpoint = self.path / "checkpoint.safetensors"
        state = load_state(checkpoint) if checkpoint.exists() else None
        lines = "".join(_to_line(record) for record in state.history) if state else ""
        write_file(self.path / "metrics.jsonl", lines.encode(), self._injector)
        return state

    def commit(self, state: TrainingState) -> None:
        """Keep an epoch, whatever happens next; its record is the last of the state's history."""
        save_state(self.path / "checkpoint.safetensors", state, self._injector)
        metrics = self.path / "metrics.jsonl"
        with destination_errors(metrics), metrics.open("a", encoding="utf-8") as file:
            file.write(_to_line(state.history[-1]))

    def finish(self, best_model: Mapping[str, Tensor], config: TrainConfig, result: Mapping[str, Any]) -> None:
        """Write the best model and what was found."""
        save_tensors(self.path / "model.safetensors", best_model, {"model": config.model}, self._injector)
        content = json.dumps(result, indent=1) + "\n"
        write_file(self.path / "result.json", content.encode(), self._injector)


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


def _to_line(record: Mapping[str, Any]) -> str:
    return json.dumps(record) + "\n"
