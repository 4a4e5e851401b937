"""The RUN folder, for every kind of run: config.toml, plan.json, metrics.jsonl, the state, result.json.

config.toml (with the kind of run) and plan.json (with the machine) are written before the first batch. The state, a
checkpoint or a commit, is replaced after every epoch, in one step, and is the truth. metrics.jsonl gets a line per
epoch without waiting for the disk; it is written again from the state on resuming and at the end. result.json ends a
run.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from diskhop.config.options import (
    SavedRun,
    differing_options,
    dump_config,
    load_config,
    option_fields,
    options_of,
    spell,
    with_later_options,
)
from diskhop.dataset.dataset import Dataset
from diskhop.errors import ConfigError, DestinationError
from diskhop.io.atomic import Injector, announce, destination_errors, make_directories, write_file
from diskhop.io.locks import lock_made_directory
from diskhop.plans import RunPlan
from diskhop.run_files import (
    CHECKPOINT_FILE,
    COMMANDS,
    CONFIG_FILE,
    KEPT_CHECKPOINT,
    METRICS_FILE,
    MODEL_FILE,
    PLAN_FILE,
    RESULT_FILE,
    SCHEMA_FILE,
    TUNING_FILE,
    read_kind,
)
from diskhop.runs.checkpoint import TrainingState, load_state, save_state, save_tensors
from diskhop.runs.schema import Schema
from diskhop.system.machine import describe_machine


class RunState(Protocol):
    """The progress of a run after a commit."""

    history: list[dict[str, Any]]


StateT = TypeVar("StateT", bound=RunState)


class RunFolder(ABC, Generic[StateT]):
    """The files that every run leaves; a subclass knows how the state is stored.

    A folder that was started or resumed is this process's until close().
    """

    def __init__(self, path: Path, injector: Injector | None = None) -> None:
        self.path = path
        self._injector = injector
        self._lock: int | None = None

    @property
    def config_path(self) -> Path:
        """The file with the options, which repeats the run."""
        return self.path / CONFIG_FILE

    @abstractmethod
    def read_state(self) -> StateT | None:
        """Read the last committed state; None before the first commit. Raises TrainingError for a damaged file."""

    @abstractmethod
    def _write_state(self, state: StateT) -> None:
        """Replace the state in one step."""

    def start(self, kind: str, config: Any, dataset: Dataset) -> None:
        """Create the folder, which must be new or empty, with its config.toml. Raises BusyError for another process."""
        require_new_folder(self.path)
        self._take()
        require_new_folder(self.path)  # another process may have finished its run here
        content = dump_config(config, kind, str(dataset.path.resolve()), dataset.hash)
        write_file(self.config_path, content.encode(), self._injector)

    def resume(self, kind: str, config: Any, dataset: Dataset) -> StateT | None:
        """Check that this is the same run and return its last state; None before the first commit.

        Raises BusyError for another process that trains it.
        """
        require_kind(self.config_path, (kind,))
        require_same_run(self.config_path, load_config(self.config_path, (type(config),)), config, dataset)
        self._take()
        state = self.read_state()
        self._write_metrics(state.history if state else [])
        return state

    def close(self) -> None:
        """Let other processes resume the run."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take(self) -> None:
        with destination_errors(self.path):
            make = partial(make_directories, self.path, self._injector)
            self._lock = lock_made_directory(self.path, self.path, make)

    def write_plan(self, plan: RunPlan) -> None:
        """Write what will run, and on which machine."""
        content = {"plan": plan.to_dict(), "machine": describe_machine()}
        write_file(self.path / PLAN_FILE, (json.dumps(content, indent=1) + "\n").encode(), self._injector)

    def commit(self, state: StateT, *, is_epoch: bool = True) -> None:
        """Keep a state, whatever happens next. is_epoch: it ends an epoch; its history ends with the record."""
        self._write_state(state)
        if is_epoch:
            metrics = self.path / METRICS_FILE
            with destination_errors(metrics), metrics.open("a", encoding="utf-8") as file:
                file.write(_to_line(state.history[-1]))

    def finish(self, history: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> None:
        """Write the result; nothing is written after it."""
        self._write_metrics(history)
        write_file(self.path / RESULT_FILE, (json.dumps(result, indent=1) + "\n").encode(), self._injector)

    def _write_metrics(self, history: Sequence[Mapping[str, Any]]) -> None:
        write_file(self.path / METRICS_FILE, "".join(map(_to_line, history)).encode(), self._injector)


class ModelFolder(RunFolder[TrainingState]):
    """The folder of a run that trains a model; its checkpoint is the state."""

    def read_state(self) -> TrainingState | None:
        """See RunFolder."""
        return load_state(self.path / CHECKPOINT_FILE) if self.has_state else None

    @property
    def has_state(self) -> bool:
        """Whether there is a checkpoint."""
        return (self.path / CHECKPOINT_FILE).exists()

    def _write_state(self, state: TrainingState) -> None:
        save_state(self.path / CHECKPOINT_FILE, state, self._injector)

    def keep_epoch(self, state: TrainingState, count: int) -> None:
        """Keep the checkpoint of an epoch that was committed under its own name, and of all these the last `count`.

        Those of later epochs are from before the run was resumed at an earlier one, and are removed, too. A count of 1
        keeps none but the checkpoint itself.
        """
        kept = self.path / KEPT_CHECKPOINT.format(state.epoch)
        with destination_errors(kept):
            kept.unlink(missing_ok=True)
            if count > 1:
                self._give_name(kept, state)
            for path in self.path.glob(KEPT_CHECKPOINT.format("*")):
                number = path.stem.partition("-")[2]
                if number.isdecimal() and not state.epoch - count < int(number) <= state.epoch:
                    path.unlink()

    def _give_name(self, kept: Path, state: TrainingState) -> None:
        """Give the checkpoint a second name, which stays when another one takes the first."""
        announce(self._injector, "rename", kept)
        try:
            kept.hardlink_to(self.path / CHECKPOINT_FILE)
        except OSError:  # a file system without hard links, or a full disk, which then says so
            save_state(kept, state, self._injector)

    def write_schema(self, schema: Schema) -> None:
        """Write what the model will expect of other datasets."""
        write_file(self.path / SCHEMA_FILE, schema.to_bytes(), self._injector)

    def save_model(self, state: TrainingState, model: str) -> None:
        """Write the best model. model: its name."""
        save_tensors(self.path / MODEL_FILE, state.best_model, {"model": model}, self._injector)


def require_new_folder(path: Path) -> None:
    """Refuse a file, and a folder with more than what an interrupted start or a search by --tune leaves."""
    with destination_errors(path):
        if path.exists() and not (path.is_dir() and all(map(_is_before_a_run, path.iterdir()))):
            way = "name another --out"
            if path.is_dir() and (path / CONFIG_FILE).exists():
                way += ", or add --resume to continue its run"
            raise DestinationError(f"{path}: already exists and is not empty; {way}")


def _is_before_a_run(path: Path) -> bool:
    return path.suffix == ".partial" or path.name == TUNING_FILE


def require_kind(config_path: Path, kinds: Collection[str]) -> None:
    """Refuse the configuration file of another kind of run; a file written by hand may name none."""
    kind = read_kind(config_path)
    if kind and kind not in kinds:
        commands = dict.fromkeys(COMMANDS[each] for each in kinds)
        wanted = " or ".join(f"'diskhop {command}'" for command in commands)
        if COMMANDS.get(kind) in commands:
            wanted += f" of kind {' or '.join(kinds)}"
        made_by = f", made by 'diskhop {COMMANDS[kind]}'" if kind in COMMANDS else ""
        raise ConfigError(f"{config_path}: belongs to a run of kind '{kind}'{made_by}; name a run of {wanted}")


def require_same_dataset(config_path: Path, dataset_hash: str, dataset: Dataset) -> None:
    """Refuse a configuration that was saved for other data."""
    if dataset_hash and dataset_hash != dataset.hash:
        raise ConfigError(
            f"{config_path}: is for the dataset with hash {dataset_hash}, {dataset.path} has {dataset.hash}; "
            "name the dataset of that run, or train without this file"
        )


def require_same_run(config_path: Path, saved: SavedRun, config: Any, dataset: Dataset) -> None:
    """Refuse to resume a run of another dataset or with other options than this configuration."""
    require_same_dataset(config_path, saved.dataset_hash, dataset)
    options = with_later_options(saved.options, type(config))
    missing = [] if read_kind(config_path) else ["kind"]
    missing += [name for name in options_of(type(config)) if name not in options]
    if missing:
        raise ConfigError(
            f"{config_path}: --resume needs every option of the run, but {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing; put the line back, or train into a new folder"
        )
    different = differing_options(options, config)
    if different:
        fields = option_fields(type(config))
        flags = {name: fields[name].main_flag for name in different}
        values = [
            f"{flag} is {spell(options[name])} in the run, not {spell(getattr(config, name))}"
            for name, flag in flags.items()
        ]
        raise ConfigError(
            f"{config_path}: --resume needs the same options, and {', '.join(values)}; remove "
            f"{' and '.join(flags.values())}, or name a new folder with --out"
        )


def _to_line(record: Mapping[str, Any]) -> str:
    return json.dumps(record) + "\n"
